//! Time per op of both levels, on programs of 100 to 1,000,000 ops.
//!
//! `cargo bench` runs all; `cargo bench -- full/chain` one group. `SHAPETRACE_BENCH_MAX=7` adds ten
//! million ops. Building a program is not part of the time: it is what the caller does.

#![allow(missing_docs)] // the macro below makes a public function

use std::hint::black_box;
use std::time::Duration;

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use shapetrace_benches::WORKLOADS;
use shapetrace_core::passes::{Context, Level, Options};

fn passes(criterion: &mut Criterion) {
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: the times say nothing");
    }
    let largest = std::env::var("SHAPETRACE_BENCH_MAX").ok().and_then(|power| power.parse().ok()).unwrap_or(6_u32);
    let options = Options { floor_division: true, ..Options::default() };
    for (level, level_name) in [(Level::Compat, "compat"), (Level::Full, "full")] {
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
                        bencher.iter(|| black_box(context.run(black_box(program), level, &options).is_identity()));
                    },
                );
            }
            group.finish();
        }
    }
}

criterion_group!(benches, passes);
criterion_main!(benches);
