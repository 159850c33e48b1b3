"""Page 7: the API's own document, readable without another host and without a script."""
