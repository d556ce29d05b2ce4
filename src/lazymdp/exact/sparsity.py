"""Decides whether a sparse matrix has sparse LU factors."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph


def stays_sparse(matrix: sp.csr_array) -> bool:
    """Returns whether the LU factors of a matrix are much sparser than its inverse.

    Estimated by the envelope of the matrix in the order of Cuthill and McKee, without the few states that very many
    others lead to (such as a start state). The order that is used has less fill.
    """
    n = matrix.shape[0]
    linked = sp.csr_array(matrix != 0)
    linked = sp.csr_array(linked + linked.T)
    degrees = np.diff(linked.indptr)
    ordinary = np.flatnonzero(degrees <= 30 + 4 * np.median(degrees))
    linked = linked[ordinary][:, ordinary]
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(linked, symmetric_mode=True)
    linked = sp.csr_array(linked[order][:, order])
    first = np.minimum.reduceat(linked.indices, linked.indptr[:-1])  # every row has its diagonal entry
    envelope = float((np.arange(ordinary.size) - first).sum())
    return envelope + (n - ordinary.size) * n < 0.1 * n * n
