"""Push notifications: what is owed to whom is told by the store, and delivered from here.

deliveries (who is served, in order, how often) -> sender (one request) -> addresses (where may it go)
"""
