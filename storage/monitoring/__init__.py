"""What monitoring keeps."""
