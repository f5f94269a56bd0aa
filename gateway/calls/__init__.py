"""One inference request from admission to settlement; REST and gRPC both go through here."""
