"""Images: files, encoders, image-caption pairs and drawn scenes."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm")
"""Those of image files."""
