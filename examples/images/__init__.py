"""A network of photographs that is sent house numbers."""
