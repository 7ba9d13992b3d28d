"""Attention written out with plain loops, one number at a time: what qkvlib is tested against."""

import math


def attention(X, W_Q, W_K, W_V, context=None, scaled=False, keep=None):
    """Lists in, lists out: (scores, weights, output), straight from sections 20.4 and 20.6 of the chapter."""
    source = X if context is None else context
    Q, K, V = _project(X, W_Q), _project(source, W_K), _project(source, W_V)
    scores, weights, output = [], [], []
    for i, q in enumerate(Q):
        row = []
        for k in K:
            score = 0.0
            for a, b in zip(q, k, strict=True):
                score += a * b
            row.append(score / math.sqrt(len(k)) if scaled else score)
        seen = [keep is None or bool(keep[i][j]) for j in range(len(K))]
        largest = max((score for score, may in zip(row, seen, strict=True) if may), default=0.0)
        powers = [math.exp(score - largest) if may else 0.0 for score, may in zip(row, seen, strict=True)]
        total = sum(powers)
        shares = [power / total if total else 0.0 for power in powers]
        scores.append(row)
        weights.append(shares)
        output.append([sum(share * v[c] for share, v in zip(shares, V, strict=True)) for c in range(len(V[0]))])
    return scores, weights, output


def _project(X, W):
    return [[sum(w * x for w, x in zip(row, position, strict=True)) for row in W] for position in X]
