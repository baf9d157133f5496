"""The loop y and B in, x̂ out; and the same for large images, tile by tile and window by window."""
