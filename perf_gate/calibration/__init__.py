"""The gate's own error rates."""
