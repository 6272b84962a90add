"""The public `.proto` files as other languages' generators and libraries read them."""
