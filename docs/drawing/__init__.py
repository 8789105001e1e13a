"""The pictures of the documentation, one module per section; make_pictures.py writes them."""
