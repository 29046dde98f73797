"""The demo on a terminal: one screen, the guest cluster on its left and Harvester on its right, as things happen.

``board`` knows what has been seen, ``screen`` draws it, ``show`` keeps both going while ``acts`` make things happen;
``film`` keeps pictures of the screen where a terminal would show it. Both clusters are only watched: what is on the
screen is what anybody with kubectl would see.
"""
