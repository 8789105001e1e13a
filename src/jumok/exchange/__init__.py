"""Import models of other toolkits into model folders, and export model folders to them."""
