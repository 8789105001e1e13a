"""Images: files, encoders, image-caption pairs and drawn scenes."""
