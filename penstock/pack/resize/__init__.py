"""Images made smaller before they are stored."""
