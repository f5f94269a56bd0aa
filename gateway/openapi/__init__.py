"""The OpenAPI document, assembled from the declarations of the routes."""
