"""A nudge and a stronger hint for each exercise. The solutions are in the folder solutions/."""

HINTS = {
    1: (
        "Write the steps one under the other: project, score, then softmax and blend. Print the shape after each. "
        "For `W`: what must happen to a vector so that it comes out as it went in?",
        "`X @ W_Q.T` has a row for each position. Scores need every query with every key, so one of the two is "
        "transposed. In the softmax, `keepdims=True` keeps the sums of the rows as a column, which divides each row.",
    ),
    2: (
        "Every score is one product, q times k. Move a query's number through 0 in the panel and watch its row: what "
        "happens to the order of the keys?",
        "With q above 0, a larger k gives a larger score. With q below 0, a larger k gives a smaller one. So two "
        "positions in the list of keys are all you need: `np.argmax(k)` and `np.argmin(k)`.",
    ),
    3: (
        "Two sequences come in. For each of the three matrices, ask: who does this job, the one that asks or the one "
        "that is asked?",
        "Only the queries are made from the decoder. Keys and values are two descriptions of the same encoder "
        "positions, so there are as many of one as of the other. Everything after that is as in exercise 1.",
    ),
    4: (
        "Draw the three matrices as rectangles and write rows and columns beside them. Which of these numbers change "
        "when the sequence has twice as many words?",
        "`W_Q` and `W_K` have d_k rows, `W_V` has d_v rows, and all have d_model columns. A fully connected layer has "
        "a number for each pair of an input and an output, and with a bias one more for each output.",
    ),
    5: (
        "Go backwards one step at a time, and ask of each number: what does it change, and by how much? Compare the "
        "shape of what you return with the shape of what you differentiate by: they are equal.",
        "Softmax: if one score rises, its own weight rises, and all the weights of that row fall in proportion to what "
        "they have. Dot product: a score is a sum of products, so a query's number passes its change on, times the "
        "key's number. Projection: every position uses the same `W_Q`, so their shares add up.",
    ),
    6: (
        "A weight is one exponential divided by the sum of its row. Write down what it means that it is more than 0.5, "
        "and multiply by the sum.",
        "More than half: the word's own exponential is larger than those of all the others together. For the matrices: "
        'the last number is largest in "down", and next to it in "cat"; a query and a key that both look at it alone '
        "would do.",
    ),
}
