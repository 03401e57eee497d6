"""The columns of stores: fields of typed values, and Arrow tables of them."""
