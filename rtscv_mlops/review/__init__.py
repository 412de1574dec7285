"""What a reviewer is asked, and what becomes of the answer."""
