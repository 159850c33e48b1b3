"""Record extinction: which keys will never be used again, and who may be told so."""
