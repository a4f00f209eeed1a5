"""Runs on logs: judged on a split's users, with a card, a page, and a book of all looks at test users."""
