"""The small pictures of the documentation, a module per section; make_pictures.py writes them."""
