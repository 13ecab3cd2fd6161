// SPDX-License-Identifier: MIT OR Apache-2.0
//! New inputs: drawn, or made of others.

use super::call::{Call, KINDS, Name};
use super::domain::{CONTEXT, Domain, FIRST_FILE};
use crate::random::Random;

/// Most calls of an input.
pub(crate) const MOST: usize = 12;

fn call(random: &mut Random) -> Call {
    let all = KINDS.iter().map(|kind| kind.weight).sum();
    let mut drawn = random.in_range(0..all);
    let number = KINDS.iter().position(|kind| {
        let here = drawn < kind.weight;
        drawn = drawn.saturating_sub(kind.weight);
        here
    });
    let mut call = Call::of_number(number.unwrap_or(0));
    // Half of the calls are meant to be right, in the others a few values are not.
    let wild = random.one_in(2);
    let kind = call.kind();
    for ((_, domain), value) in kind.fields().zip(&mut call.values) {
        let drawn = if wild && random.one_in(8) { Domain::wild } else { Domain::draw };
        *value = drawn(domain, random, kind.size);
    }
    call
}

/// Most inputs begin with contexts that have a buffer, as little can be done without.
pub(crate) fn input(random: &mut Random) -> Vec<Call> {
    let mut calls = Vec::new();
    for place in 0..random.in_range(0..4) {
        let ctx = CONTEXT as u64 + place;
        let fd = if random.one_in(2) { 0 } else { random.in_range(0..FIRST_FILE as u64) };
        calls.push(Call::new(Name::Attach).with(&[("ctx", ctx), ("fd", fd)]));
    }
    for _ in 0..random.in_range(1..8) {
        calls.push(call(random));
    }
    calls
}

fn place(random: &mut Random, calls: &[Call]) -> usize {
    random.in_range(0..calls.len() as u64) as usize
}

/// Another value of a field; `descriptor`: of one that has a descriptor.
fn change(random: &mut Random, call: &mut Call, descriptor: bool) {
    let fields: Vec<(usize, Domain)> = call
        .kind()
        .fields()
        .map(|(_, domain)| domain)
        .enumerate()
        .filter(|(_, domain)| !descriptor || domain.is_descriptor())
        .collect();
    if !fields.is_empty() {
        let (place, domain) = random.pick(&fields);
        call.values[place] = domain.near(random, call.values[place], call.kind().size);
    }
}

/// An input that is like another, or like the start of one and the end of another.
pub(crate) fn mutate(random: &mut Random, one: &[Call], other: &[Call]) -> Vec<Call> {
    let mut calls = one.to_vec();
    for _ in 0..random.in_range(1..5) {
        if calls.is_empty() {
            calls.push(call(random));
        }
        let at = place(random, &calls);
        match random.in_range(0..10) {
            0 => {
                calls.truncate(at);
                calls.extend_from_slice(&other[place(random, other).min(other.len())..]);
            }
            1 => calls.insert(at, calls[at].clone()),
            2 => {
                calls.remove(at);
            }
            3 => calls.insert(at, call(random)),
            4 => calls.push(call(random)),
            5 => {
                let with = place(random, &calls);
                calls.swap(at, with);
            }
            6 => change(random, &mut calls[at], true),
            _ => change(random, &mut calls[at], false),
        }
    }
    calls.truncate(MOST);
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_drawn_and_seeds_repeat() {
        let mut random = Random::of_round(3, 0);
        let mut again = Random::of_round(3, 0);
        let mut seen = vec![false; KINDS.len()];
        let mut last = input(&mut random);
        assert_eq!(input(&mut again), last);
        for _ in 0..500 {
            let next = input(&mut random);
            let mutated = mutate(&mut random, &last, &next);
            assert!(mutated.len() <= MOST);
            for call in &mutated {
                seen[call.name as usize] = true;
            }
            last = next;
        }
        assert!(seen.into_iter().all(|seen| seen));
    }
}
