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
use crate::ir::{EditList, Op, OpFlags, Program, Value};

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
    /// In which rounds it runs.
    pub rounds: Rounds,
    run: fn(&mut Run<'_>),
}

/// In which rounds a pass runs.
///
/// Level "full" works in rounds. The first removes what is dead or made twice under the names
/// that there are, so that dead ops have no say in anything that follows. The second gives numbers
/// one name each, and removes what is dead or made twice then. As names may be free now that
/// had to stay, there are more rounds until one finds nothing to do, or it is known that none would;
/// a real trace needs two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// In every round.
    All,
    /// In every round but the first.
    Later,
    /// Once, behind the last round.
    End,
}

/// So many rounds at most: each is linear, and so is all of it.
const MOST_ROUNDS: usize = 8;

/// The passes, in the order in which they run.
pub static PASSES: &[Pass] = &[
    Pass {
        name: "effects",
        description: "find the ops that have an effect themselves or inside",
        levels: &[Level::Compat, Level::Full],
        rounds: Rounds::All,
        run: |run| {
            let rules = match run.level {
                Level::Compat => EffectRules::default(),
                Level::Full => EffectRules { opaque_ops: true, random_ops: run.options.keep_random },
            };
            let State { effects, edits, progress, .. } = &mut *run.state;
            if progress.round == 0 {
                find_effects(run.program, rules, effects);
            } else {
                progress.relaxed = effects.relax(run.program, rules, |op| edits.is_kept(op));
            }
        },
    },
    Pass {
        name: "shape-arithmetic",
        description: "number shape queries and scalar arithmetic, choose one name for each number",
        levels: &[Level::Full],
        rounds: Rounds::Later,
        run: |run| {
            let state = &mut *run.state;
            let first_run = state.progress.round == 1;
            let is_final = !state.progress.relaxed && state.final_with == Some(state.edits.rewrites.len());
            if is_final && !cfg!(debug_assertions) {
                state.progress.is_idle = true;
                return;
            }
            let (effects, edits) = (&state.effects, &mut state.edits);
            let found = state.shape_arithmetic.run(run.program, effects, *run.options, first_run, edits);
            debug_assert!(!is_final || !found.renamed && !found.proposed, "the run before was the last");
            state.final_with = found.final_with;
            state.progress.renamed = found.renamed;
            let nothing_new = !found.renamed && !found.proposed && !state.progress.relaxed;
            // The second round must run to drop positions of queries, if there may be dead ones: what
            // removed nothing in the first round would find the same program again.
            let waits = found.has_queries && first_run;
            let waits = waits && (edits.extent() != (0, 0, 0) || state.dead_code.saw_dead_positions());
            state.progress.is_idle = nothing_new && !waits;
        },
    },
    Pass {
        name: "first-producer",
        description: "of the ops that define a value in a scope, choose the first",
        levels: &[Level::Compat, Level::Full],
        rounds: Rounds::All,
        run: |run| {
            let state = &mut *run.state;
            // Thunder's rules ask for producers at the top alone.
            state.first_producers.run(run.program, run.level == Level::Compat, &mut state.edits);
        },
    },
    Pass {
        name: "duplicate-producers",
        description: "remove what defines again what a scope has defined",
        levels: &[Level::Full],
        rounds: Rounds::All,
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
        rounds: Rounds::All,
        run: |run| {
            let state = &mut *run.state;
            let first = &state.first_producers;
            let drop_positions = state.progress.round > 0;
            state.dead_code.run(run.program, &state.effects, first, *run.options, drop_positions, &mut state.edits);
        },
    },
    Pass {
        name: "compat",
        description: "dead code, known numbers and no-ops, as thunder's own pass treats them",
        levels: &[Level::Compat],
        rounds: Rounds::All,
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
        rounds: Rounds::End,
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
    progress: Progress,
    /// The last run of shape arithmetic left nothing to another, if so many rewrites are in force.
    final_with: Option<usize>,
}

/// How the current round goes.
#[derive(Debug, Default)]
struct Progress {
    /// Which round it is, from 0.
    round: usize,
    /// An op may be merged that could not be before.
    relaxed: bool,
    /// A value got another name.
    renamed: bool,
    /// Nothing is different from the round before, so the passes behind need not run.
    is_idle: bool,
}

/// Runs pipelines; keeps the memory of one run for the next.
#[derive(Debug, Default)]
pub struct Context {
    state: State,
}

impl Context {
    /// Optimizes a program. Linear in the number of ops and operands; no recursion.
    ///
    /// At level "compat", two ops without keyword arguments are equal when symbol, operands and
    /// results are; a caller that knows more (literals among the operands) uses
    /// [`Context::run_with`].
    pub fn run(&mut self, program: &Program, level: Level, options: &Options) -> &EditList {
        let mut equal = |a: Op, b: Op| {
            a == b
                || program.symbol_id(a) == program.symbol_id(b)
                    && !(program.flags(a) | program.flags(b)).contains(OpFlags::KEYWORDS)
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
        self.state.final_with = None;
        let mut run = Run { program, level, options, equal, state: &mut self.state };
        let passes = PASSES.iter().filter(|pass| pass.levels.contains(&level));
        let rounds = if level == Level::Full { MOST_ROUNDS } else { 1 };
        'rounds: for round in 0..rounds {
            let before = run.state.edits.extent();
            run.state.progress = Progress { round, ..Progress::default() };
            for pass in passes.clone().filter(|pass| pass.rounds != Rounds::End) {
                if round > 0 || pass.rounds == Rounds::All {
                    (pass.run)(&mut run);
                }
                if run.state.progress.is_idle {
                    break 'rounds;
                }
            }
            if round > 0 && !run.state.progress.renamed && run.state.edits.extent() == before {
                break;
            }
        }
        for pass in passes.filter(|pass| pass.rounds == Rounds::End) {
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
        let any_reshaped = !edits.reshaped.is_empty();
        for op in program.ops() {
            let is_other =
                |value: Value| edits.replacement(value).is_some() || any_reshaped && edits.is_reshaped(value);
            let touched = edits.is_kept(op)
                && (program.operand_values(op).any(is_other) || program.result_values(op).any(is_other));
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
