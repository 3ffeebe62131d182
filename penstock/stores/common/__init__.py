"""What stores of several kinds use: mapped files, keys, indices of records, compression, journals of writers."""
