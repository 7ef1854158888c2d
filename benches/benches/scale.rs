//! Whether time and memory of the passes grow in step with the program, from 100 to 10,000,000 ops.
//!
//! `cargo bench --bench scale` prints a table: nanoseconds an op (medians; sizes of a kind take turns),
//! and bytes an op, of the program itself and at most beside it while the passes run on it for the first
//! time, in a context of its own. `SHAPETRACE_BENCH_MAX=6` stops at a million ops; `cargo bench --bench scale -- wide`
//! takes one kind. The last column is the memory that goes beyond 64 bytes an op and 4 bytes an
//! operand, if it does.

#![allow(missing_docs, clippy::cast_precision_loss)] // a program that prints figures

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use shapetrace_benches::WORKLOADS;
use shapetrace_core::ir::Program;
use shapetrace_core::passes::{Context, Level, Options};

const LEVELS: [(Level, &str); 2] = [(Level::Compat, "compat"), (Level::Full, "full")];
const OPTIONS: Options = Options { keep_random: false, keep_shape_numbers: false, floor_division: true };
const LEAST_OPS: u32 = 2;
const MOST_OPS: u32 = 7;
const ROUNDS: usize = 7;
/// So many ops are optimized at least for one time: what is short is done again and again.
const OPS_FOR_A_TIME: usize = 100_000;

/// Counts what is allocated.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn took(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    MOST.fetch_max(now, Relaxed);
}

// SAFETY: everything is left to the system's allocator; only sizes are added up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: what the caller promised for this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: what the caller promised for this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: what the caller promised for this function.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The system may move it, and has both for a while.
        took(size);
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: what the caller promised for this function.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: the times say nothing");
    }
    let largest = std::env::var("SHAPETRACE_BENCH_MAX").ok().and_then(|power| power.parse().ok()).unwrap_or(MOST_OPS);
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("{:<12} {:<7} {:>9} {:>8} {:>9} {:>9} {:>8}", "", "", "ops", "ns/op", "program", "passes", "too much");
    for workload in WORKLOADS {
        if !wanted.is_empty() && !wanted.iter().any(|word| workload.name.contains(word.as_str())) {
            continue;
        }
        let made: Vec<(Program, usize)> = (LEAST_OPS..=largest)
            .map(|power| {
                let before = NOW.load(Relaxed);
                // A copy has no room to spare.
                let program = (workload.make)(10_usize.pow(power)).clone();
                (program, NOW.load(Relaxed) - before)
            })
            .collect();
        for (level, level_name) in LEVELS {
            let peaks: Vec<usize> = made.iter().map(|(program, _)| peak(program, level)).collect();
            let mut times = vec![Vec::new(); made.len()];
            let mut contexts: Vec<Context> = made.iter().map(|_| Context::default()).collect();
            for round in 0..=ROUNDS {
                for (index, (program, _)) in made.iter().enumerate() {
                    let spent = nanoseconds_an_op(&mut contexts[index], program, level);
                    // The first round is to warm up.
                    if round > 0 {
                        times[index].push(spent);
                    }
                }
            }
            for (((program, size), peak), times) in made.iter().zip(peaks).zip(&mut times) {
                times.sort_by(f64::total_cmp);
                let ops = program.op_count() as f64;
                let operands: usize = program.ops().map(|op| program.operands(op).len()).sum();
                let too_much = (size + peak) as f64 / ops - 64.0 - 4.0 * operands as f64 / ops;
                println!(
                    "{:<12} {level_name:<7} {:>9} {:>8.1} {:>9.1} {:>9.1} {:>8}",
                    workload.name,
                    program.op_count(),
                    times[times.len() / 2],
                    *size as f64 / ops,
                    peak as f64 / ops,
                    if too_much > 0.0 { format!("{too_much:.1}") } else { "-".to_owned() },
                );
            }
        }
    }
}

/// The most memory that one run takes in a context of its own.
fn peak(program: &Program, level: Level) -> usize {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let mut context = Context::default();
    black_box(context.run(black_box(program), level, &OPTIONS).is_identity());
    MOST.load(Relaxed) - before
}

/// The time of one run, in a context that ran before.
fn nanoseconds_an_op(context: &mut Context, program: &Program, level: Level) -> f64 {
    let runs = (OPS_FOR_A_TIME / program.op_count()).max(1);
    let start = Instant::now();
    for _ in 0..runs {
        black_box(context.run(black_box(program), level, &OPTIONS).is_identity());
    }
    start.elapsed().as_nanos() as f64 / (runs * program.op_count()) as f64
}
