//! Time per op of both levels, on programs of 100 to 1,000,000 ops and on traces of real compiles,
//! and of reading and writing the files of these.
//!
//! `cargo bench` runs all; `cargo bench -- full/chain` one group, `cargo bench -- recorded` the real traces. `SHAPETRACE_BENCH_MAX=7` adds ten
//! million ops. Building a program is not part of the time: it is what the caller does.

#![allow(missing_docs)] // the macro below makes a public function

use std::hint::black_box;
use std::time::Duration;

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use shapetrace_benches::{RECORDED, WORKLOADS};
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_format::binary::{read, write, Limits};

const LEVELS: [(Level, &str); 2] = [(Level::Compat, "compat"), (Level::Full, "full")];
const OPTIONS: Options = Options { keep_random: false, keep_shape_numbers: false, floor_division: true };

fn passes(criterion: &mut Criterion) {
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: the times say nothing");
    }
    let largest = std::env::var("SHAPETRACE_BENCH_MAX").ok().and_then(|power| power.parse().ok()).unwrap_or(6_u32);
    for (level, level_name) in LEVELS {
        for workload in WORKLOADS {
            let mut group = criterion.benchmark_group(format!("{level_name}/{}", workload.name));
            group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
            for power in 2..=largest {
                let program = (workload.make)(10_usize.pow(power));
                group.throughput(Throughput::Elements(program.op_count() as u64));
                let mut context = Context::default();
                group.bench_with_input(
                    BenchmarkId::from_parameter(format!("1e{power}")),
                    &program,
                    |bencher, program| {
                        bencher.iter(|| black_box(context.run(black_box(program), level, &OPTIONS).is_identity()));
                    },
                );
            }
            group.finish();
        }
    }
}

fn recorded(criterion: &mut Criterion) {
    for recorded in RECORDED {
        let file = read(recorded.bytes, &Limits::default()).expect("a trace file");
        let program = &file.program;
        let mut group = criterion.benchmark_group(format!("recorded/{}", recorded.name));
        group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        group.throughput(Throughput::Elements(program.op_count() as u64));
        for (level, level_name) in LEVELS {
            let mut context = Context::default();
            group.bench_function(level_name, |bencher| {
                bencher.iter(|| black_box(context.run(black_box(program), level, &OPTIONS).is_identity()));
            });
        }
        group.bench_function("write", |bencher| bencher.iter(|| write(black_box(&file)).expect("a file").len()));
        group.bench_function("read", |bencher| {
            bencher.iter(|| read(black_box(recorded.bytes), &Limits::default()).expect("a file").program.op_count());
        });
        group.finish();
    }
}

criterion_group!(benches, passes, recorded);
criterion_main!(benches);
