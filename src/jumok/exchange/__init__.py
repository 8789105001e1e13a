"""Models of other toolkits, read into model folders of ours and written for them."""
