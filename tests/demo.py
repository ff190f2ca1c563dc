"""The explorer of the demo model that many tests open."""

import hookviz


def explore_demo(picture=6, target=None, **settings):
    """Explore one of the demo pictures; picture 6 is a moon."""
    model, pictures = hookviz.demo_model(), hookviz.demo_images()
    return hookviz.explore(model, pictures[picture], target, **settings)
