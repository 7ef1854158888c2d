//! The pipeline. [`PASSES`] is what runs, in this order; nothing else does.

mod compat;
mod dce;
mod duplicate_producers;
mod first_producer;
mod noop_subsymbols;
pub mod shape_arithmetic;
mod shape_queries;

use compat::Compat;
use dce::DeadCode;
use duplicate_producers::DuplicateProducers;
use first_producer::FirstProducers;
use shape_arithmetic::ShapeArithmetic;

use crate::analysis::effects::{find_effects, EffectRules, Effects};
use crate::entity::Entity;
use crate::ir::{EditList, Op, Operand, Program};

/// How much the optimizer does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// What thunder's own pass does, and only that.
    Compat,
    /// All passes, in every scope.
    #[default]
    Full,
}

impl Level {
    /// The level of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "compat" => Some(Self::Compat),
            "full" => Some(Self::Full),
            _ => None,
        }
    }
}

/// Policies of level "full".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Keep unused random ops, so that the random stream stays what it was.
    pub keep_random: bool,
    /// Keep one producer of each number that stands in the shape of a live tensor.
    pub keep_shape_numbers: bool,
    /// The host has an operation for Python's floor division: recognise the long form.
    pub floor_division: bool,
}

/// One pass of the pipeline.
#[derive(Debug)]
pub struct Pass {
    /// Its name, in reports and file tests.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub description: &'static str,
    /// The levels at which it runs.
    pub levels: &'static [Level],
    run: fn(&mut Run<'_>),
}

/// The passes, in the order in which they run.
pub static PASSES: &[Pass] = &[
    Pass {
        name: "effects",
        description: "find the ops that have an effect themselves or inside",
        levels: &[Level::Compat, Level::Full],
        run: |run| {
            let rules = match run.level {
                Level::Compat => EffectRules::default(),
                Level::Full => EffectRules { opaque_ops: true, random_ops: run.options.keep_random },
            };
            find_effects(run.program, rules, &mut run.state.effects);
        },
    },
    Pass {
        name: "shape-arithmetic",
        description: "number shape queries and scalar arithmetic, choose one name for each number",
        levels: &[Level::Full],
        run: |run| {
            let state = &mut *run.state;
            state.shape_arithmetic.run(run.program, &state.effects, run.options, &mut state.edits);
        },
    },
    Pass {
        name: "first-producer",
        description: "of the ops that define a value in a scope, choose the first",
        levels: &[Level::Compat, Level::Full],
        run: |run| {
            let state = &mut *run.state;
            let (first, arithmetic) = (&mut state.first_producers, &state.shape_arithmetic);
            first.run(run.program, |value| arithmetic.is_input(value), &mut state.edits);
        },
    },
    Pass {
        name: "duplicate-producers",
        description: "remove what defines again what a scope has defined",
        levels: &[Level::Full],
        run: |run| {
            let state = &mut *run.state;
            let first = &state.first_producers;
            state.duplicate_producers.run(run.program, &state.effects, first, &mut state.edits);
        },
    },
    Pass {
        name: "dce",
        description: "remove what nothing needs, no-ops and dead positions of queries with it",
        levels: &[Level::Full],
        run: |run| {
            let state = &mut *run.state;
            let first = &state.first_producers;
            state.dead_code.run(run.program, &state.effects, first, run.options, &mut state.edits);
        },
    },
    Pass {
        name: "compat",
        description: "dead code, known numbers and no-ops, as thunder's own pass treats them",
        levels: &[Level::Compat],
        run: |run| {
            let state = &mut *run.state;
            let first = &state.first_producers;
            state.compat.run(run.program, &state.effects, first, run.equal, &mut state.edits);
        },
    },
    Pass {
        name: "changed-ops",
        description: "mark the ops that are not what they were, with their owners",
        levels: &[Level::Compat, Level::Full],
        run: |run| mark_changed_ops(run.program, &mut run.state.edits),
    },
];

/// One run of the pipeline.
struct Run<'a> {
    program: &'a Program,
    level: Level,
    options: &'a Options,
    equal: &'a mut dyn FnMut(Op, Op) -> bool,
    state: &'a mut State,
}

/// Memory of all passes.
#[derive(Debug, Default)]
struct State {
    effects: Effects,
    shape_arithmetic: ShapeArithmetic,
    first_producers: FirstProducers,
    duplicate_producers: DuplicateProducers,
    dead_code: DeadCode,
    compat: Compat,
    edits: EditList,
}

/// Runs pipelines; keeps the memory of one run for the next.
#[derive(Debug, Default)]
pub struct Context {
    state: State,
}

impl Context {
    /// Optimizes a program. Linear in the number of ops and operands; no recursion.
    ///
    /// At level "compat", two ops are equal when symbol, operands and results are; a caller that
    /// knows more (literals among the operands) uses [`Context::run_with`].
    pub fn run(&mut self, program: &Program, level: Level, options: &Options) -> &EditList {
        let mut equal = |a: Op, b: Op| {
            program.symbol_id(a) == program.symbol_id(b)
                && program.operands(a) == program.operands(b)
                && program.results(a) == program.results(b)
        };
        self.run_with(program, level, options, &mut equal)
    }

    /// As [`Context::run`], with the caller's own comparison of two ops.
    pub fn run_with(
        &mut self,
        program: &Program,
        level: Level,
        options: &Options,
        equal: &mut dyn FnMut(Op, Op) -> bool,
    ) -> &EditList {
        self.state.edits.reset(program.op_count(), program.result_count());
        let mut run = Run { program, level, options, equal, state: &mut self.state };
        for pass in PASSES.iter().filter(|pass| pass.levels.contains(&level)) {
            (pass.run)(&mut run);
        }
        &self.state.edits
    }

    /// The edits of the last run.
    pub fn edits(&self) -> &EditList {
        &self.state.edits
    }

    /// The effects that the last run found.
    pub fn effects(&self) -> &Effects {
        &self.state.effects
    }
}

/// An op changed if a value that it reads or writes goes by another name or carries another
/// shape, if it was rewritten, or if anything in the scope inside it went or changed.
fn mark_changed_ops(program: &Program, edits: &mut EditList) {
    let rewritten: Vec<Op> = edits.rewrites.iter().map(|rewrite| rewrite.op).collect();
    for op in rewritten {
        edits.changed.insert(op.index());
    }
    if edits.has_replacements {
        for op in program.ops() {
            let touched = edits.is_kept(op)
                && program
                    .operands(op)
                    .iter()
                    .copied()
                    .filter_map(Operand::value)
                    .chain(program.result_values(op))
                    .any(|value| edits.replacement(value).is_some() || edits.is_reshaped(value));
            if touched {
                edits.changed.insert(op.index());
            }
        }
    }
    for scope in program.scopes().skip(1).rev() {
        let owner = program.scope_owner(scope).expect("only the top level has no owner");
        if edits.is_kept(owner) && program.scope_ops(scope).any(|op| !edits.is_kept(op) || edits.is_changed(op)) {
            edits.changed.insert(owner.index());
        }
    }
    // A rewrite of an op that went after all is none.
    let mut rewrites = std::mem::take(&mut edits.rewrites);
    rewrites.retain(|rewrite| edits.is_kept(rewrite.op));
    edits.rewrites = rewrites;
}
