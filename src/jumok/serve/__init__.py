"""The web server: a page and a REST interface over trained models; parse, call, respond."""
