// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes operations from a sequence as long as it fails.

/// Halves, quarters and so on are left out in turn. `tries`: how often a sequence may be run.
pub(crate) fn shrink<T: Clone>(
    ops: &[T],
    mut tries: usize,
    fails: &mut dyn FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut ops = ops.to_vec();
    let mut size = ops.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        let mut removed = false;
        while start < ops.len() && tries > 0 {
            let mut shorter = ops.clone();
            shorter.drain(start..(start + size).min(ops.len()));
            tries -= 1;
            if fails(&shorter) {
                ops = shorter;
                removed = true;
            } else {
                start += size;
            }
        }
        if tries == 0 || (size == 1 && !removed) {
            return ops;
        }
        size = if size > 1 { size.div_ceil(2) } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_stays() {
        let all: Vec<u32> = (0..100).collect();
        let shorter = shrink(&all, 1000, &mut |ops| ops.contains(&13) && ops.contains(&77));
        assert_eq!(shorter, [13, 77]);
    }

    #[test]
    fn it_gives_up() {
        let all: Vec<u32> = (0..100).collect();
        assert_eq!(shrink(&all, 0, &mut |_| true), all);
        assert!(shrink(&all, 1000, &mut |_| true).is_empty());
    }
}
