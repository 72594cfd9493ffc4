"""Two modules matched by their structure, and what differs between them."""
