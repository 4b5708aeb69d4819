//! Rows of choices that cover every pair of choices of two dimensions.

use std::collections::BTreeSet;

/// Two choices, each as its dimension and its number.
type Pair = ((usize, usize), (usize, usize));

/// Returns rows for dimensions with `sizes` choices each. A row has the number of its choice in each dimension. The
/// first row has choice 0 of all dimensions.
pub fn cover(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut open = all(sizes);
    let mut rows = Vec::new();
    let mut row = vec![0; sizes.len()];
    loop {
        let done = of_row(&row);
        open.retain(|pair| !done.contains(pair));
        rows.push(row);
        let Some(first) = open.first().copied() else { return rows };
        row = next(sizes, first, &open);
    }
}

/// Returns a row with this pair. In each other dimension it takes the choice that covers most open pairs.
fn next(sizes: &[usize], (one, other): Pair, open: &BTreeSet<Pair>) -> Vec<usize> {
    let mut chosen: Vec<(usize, usize)> = vec![one, other];
    for (dimension, size) in sizes.iter().enumerate() {
        if chosen.iter().any(|(there, _)| *there == dimension) {
            continue;
        }
        let adds = |choice: usize| {
            let new = (dimension, choice);
            chosen.iter().filter(|old| open.contains(&pair(**old, new))).count()
        };
        // Of equal choices the last one: the first row covers choices 0 already.
        let best = (0..*size).max_by_key(|choice| adds(*choice)).unwrap_or(0);
        chosen.push((dimension, best));
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|(_, choice)| choice).collect()
}

fn all(sizes: &[usize]) -> BTreeSet<Pair> {
    let mut pairs = BTreeSet::new();
    for (one, ones) in sizes.iter().enumerate() {
        for (other, others) in sizes.iter().enumerate().skip(one + 1) {
            pairs
                .extend((0..*ones).flat_map(|a| (0..*others).map(move |b| ((one, a), (other, b)))));
        }
    }
    pairs
}

fn of_row(row: &[usize]) -> BTreeSet<Pair> {
    let chosen: Vec<(usize, usize)> = row.iter().copied().enumerate().collect();
    let ahead = |at: usize| chosen.iter().skip(at + 1);
    chosen.iter().enumerate().flat_map(|(at, one)| ahead(at).map(|other| (*one, *other))).collect()
}

fn pair(one: (usize, usize), other: (usize, usize)) -> Pair {
    if one.0 < other.0 { (one, other) } else { (other, one) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_in_a_row_and_rows_are_few() {
        for sizes in [&[2, 2][..], &[3, 3, 3], &[5, 4, 3, 3, 2, 2, 2, 2, 2, 3, 3, 4]] {
            let rows = cover(sizes);
            let seen: BTreeSet<Pair> = rows.iter().flat_map(|row| of_row(row)).collect();
            assert_eq!(seen, all(sizes));
            assert!(rows.iter().all(|row| row.len() == sizes.len()));
            let mut largest = sizes.to_vec();
            largest.sort_unstable();
            let least: usize = largest.iter().rev().take(2).product();
            assert!(rows.len() <= least * 2, "{} rows of at least {least}", rows.len());
        }
    }
}
