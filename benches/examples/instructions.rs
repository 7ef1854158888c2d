//! What `scripts/count_instructions.py` counts of the core, under callgrind: one run of the passes for each kind of
//! program and each level, with the memory of a run before. Prints a line for each, in the order of the counts.

#![allow(missing_docs)] // a program

use std::hint::black_box;

use shapetrace_benches::{wide, WORKLOADS};
use shapetrace_core::ir::Program;
use shapetrace_core::passes::{Context, Level, Options};

const LEVELS: [(Level, &str); 2] = [(Level::Compat, "compat"), (Level::Full, "full")];
const OPTIONS: Options = Options { keep_random: false, keep_shape_numbers: false, floor_division: true };
const OPS: usize = 10_000;
/// Ops inside one parent: an op costs the same in each.
const WIDTHS: [usize; 2] = [500, 50_000];

fn main() {
    for workload in WORKLOADS {
        count(workload.name, &(workload.make)(OPS));
    }
    for width in WIDTHS {
        count(&format!("width-{width}"), &wide(width));
    }
}

fn count(what: &str, program: &Program) {
    for (level, name) in LEVELS {
        let mut context = Context::default();
        black_box(context.run(program, level, &OPTIONS).is_identity());
        counted_passes(&mut context, program, level);
        println!("{what}-{name}");
    }
}

/// Callgrind collects in here only, and writes down what it has each time this returns. It wants the
/// exact name for that.
#[inline(never)]
#[no_mangle]
extern "Rust" fn counted_passes(context: &mut Context, program: &Program, level: Level) {
    black_box(context.run(black_box(program), level, &OPTIONS).is_identity());
}
