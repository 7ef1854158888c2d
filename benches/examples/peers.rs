//! The optimizer's side of `benches/peers.py`: reads commands, one a line, and answers each with a line.
//!
//! `make GRAPH OPS` makes a graph and keeps it. `run GRAPH OPS LEVEL` optimizes it and answers with
//! nanoseconds and the ops that are left; `apply GRAPH OPS LEVEL` makes the new program as well.

#![allow(missing_docs)] // a program

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{stdin, stdout, BufRead, Write};
use std::time::Instant;

use shapetrace_benches::peers::GRAPHS;
use shapetrace_core::ir::{apply, Program};
use shapetrace_core::passes::{Context, Level, Options};

const OPTIONS: Options = Options { keep_random: false, keep_shape_numbers: false, floor_division: true };

fn main() {
    let mut programs: BTreeMap<(String, usize), Program> = BTreeMap::new();
    let mut context = Context::default();
    for line in stdin().lock().lines() {
        let line = line.expect("text");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [command, graph, ops, ref rest @ ..] = words[..] else { panic!("not a command: {line}") };
        let key = (graph.to_owned(), ops.parse().expect("a number of ops"));
        if command == "make" {
            let make = GRAPHS.iter().find(|known| known.name == graph).expect("a known graph").make;
            programs.insert(key.clone(), make(key.1));
            println!("made {}", programs[&key].op_count());
        } else {
            let level = Level::from_name(rest[0]).expect("a level");
            let program = &programs[&key];
            let start = Instant::now();
            let edits = context.run(black_box(program), level, &OPTIONS);
            let applied = (command == "apply").then(|| apply(program, edits));
            let spent = start.elapsed().as_nanos();
            let kept = applied
                .map_or_else(|| program.ops().filter(|&op| edits.is_kept(op)).count(), |program| program.op_count());
            println!("{spent} {kept}");
        }
        stdout().flush().expect("somebody reads");
    }
}
