"""The DataLoader with torch's arguments, order, random draws and errors."""
