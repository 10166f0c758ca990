"""Secure aggregation: the server learns a sum over sites, and of a single site nothing else.

The protocol is that of Bonawitz et al. 2017 ("Practical Secure Aggregation for Privacy-Preserving
Machine Learning"), with every pair of sites masking each other. A sum takes four messages to each
site, which is one file here on each side of it:

    keys        a site makes two fresh key pairs, and tells the public halves
    shares      it splits its secrets among all sites, sealed so that the server cannot read them
    masked      it sends its vector under masks that cancel in the sum over all sites
    unmask      it tells its shares of what is needed to take off the masks that did not cancel

shares.py splits and joins secrets, masks.py makes keys and masks, fixed_point.py makes integers of
numbers, signing.py has the sites' lasting keys, site.py is what a site does and when it refuses,
joining.py is what the server does. Nothing here knows of Flower.
"""
