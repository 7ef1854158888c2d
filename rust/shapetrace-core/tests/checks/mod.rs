//! What must hold of every optimized program.

use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{apply_with_ops, Applied, EditList, OpFlags, OpStatus, Program};
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_core::text::{op_line, op_lines, parse, print};
use shapetrace_core::verifier::{verify, verify_form, Form};

use crate::interpreter::{Policy, World};

/// What is to be checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// How the program is optimized.
    pub(crate) level: Level,
    /// With which options.
    pub(crate) options: Options,
    /// The program is not well formed before, and need not be afterwards.
    pub(crate) malformed: bool,
    /// The program may compute something else afterwards: where thunder's own pass does so.
    pub(crate) not_equivalent: bool,
    /// A second run may change something: thunder's own pass leaves work for itself.
    pub(crate) one_run: bool,
}

impl Setting {
    /// A well-formed program at this level.
    pub(crate) fn new(level: Level, options: Options) -> Self {
        Self { level, options, malformed: false, not_equivalent: false, one_run: false }
    }
}

/// A program that passed all checks. Not every test looks at all of it.
#[allow(dead_code)]
pub(crate) struct Checked {
    /// The edits.
    pub(crate) edits: EditList,
    /// The program as it is afterwards.
    pub(crate) applied: Applied,
    /// In how many worlds the programs before and after were run.
    pub(crate) worlds: usize,
}

/// How many worlds a program is tried in.
pub(crate) const WORLDS: u64 = 12;

/// Optimizes a program and checks what must hold, whatever the program is.
pub(crate) fn check(program: &Program, setting: Setting) -> Result<Checked, String> {
    round_trip(program)?;
    if !setting.malformed {
        expect_clean(program, Form::Traced, "before")?;
    }
    let mut context = Context::default();
    let edits = context.run(program, setting.level, &setting.options).clone();
    let applied = apply_with_ops(program, &edits);
    edits_are_consistent(program, &edits, &applied)?;
    round_trip(&applied.program)?;
    if !setting.malformed && !setting.not_equivalent {
        let form = if setting.level == Level::Full { Form::Optimized } else { Form::Traced };
        expect_clean(&applied.program, form, "after")?;
    }
    let again = context.run(&applied.program, setting.level, &setting.options).clone();
    if !again.is_identity() && !setting.one_run {
        let twice = apply_with_ops(&applied.program, &again);
        return Err(format!(
            "a second run changes something\nbefore:\n{}once:\n{}twice:\n{}",
            print(program),
            print(&applied.program),
            print(&twice.program)
        ));
    }
    let worlds = if setting.not_equivalent { 0 } else { same_outcome(program, &applied.program, setting)? };
    Ok(Checked { edits, applied, worlds })
}

/// Printing and parsing agree.
pub(crate) fn round_trip(program: &Program) -> Result<(), String> {
    let text = print(program);
    let parsed = parse(&text).map_err(|error| format!("the printed program does not parse: {error}\n{text}"))?;
    let again = print(&parsed);
    if text == again {
        Ok(())
    } else {
        Err(format!("printing is not stable\nfirst:\n{text}second:\n{again}"))
    }
}

fn expect_clean(program: &Program, form: Form, when: &str) -> Result<(), String> {
    let errors = match form {
        Form::Traced => verify(program),
        Form::Optimized => verify_form(program, form),
    };
    if errors.is_empty() {
        return Ok(());
    }
    let messages: Vec<String> = errors.iter().take(5).map(|error| error.explain(program)).collect();
    Err(format!("the program does not verify {when}:\n{}\n{}", messages.join("\n"), print(program)))
}

/// Edits say no more than what happens.
fn edits_are_consistent(program: &Program, edits: &EditList, applied: &Applied) -> Result<(), String> {
    let (lines_before, lines_after) = (op_lines(program), op_lines(&applied.program));
    // Whether an op, or anything inside it, is different: scopes inside come later.
    let mut differs = vec![false; program.op_count()];
    for scope in program.scopes().rev() {
        for op in program.scope_ops(scope) {
            let Some(now) = applied.ops[op.index()].get() else {
                differs[op.index()] = true;
                if edits.status(op) == OpStatus::Kept {
                    return Err(format!("{op} is kept inside an op that is not"));
                }
                continue;
            };
            let reshaped =
                program.operand_values(op).chain(program.result_values(op)).any(|value| edits.is_reshaped(value));
            let other = reshaped || lines_before[op.index()] != lines_after[now.index()];
            let inside = program.op_scope(op).into_iter().flat_map(|inside| program.scope_ops(inside));
            differs[op.index()] |= other || inside.into_iter().any(|op| differs[op.index()]);
            let mut values = program.operand_values(op).chain(program.result_values(op));
            if program.flags(op).contains(OpFlags::FIXED_NAMES)
                && values.any(|value| edits.replacement(value).is_some())
            {
                return Err(format!("{op} is to keep its names: {}\n{}", op_line(program, op), print(program)));
            }
            if edits.is_changed(op) != differs[op.index()] {
                let said = if edits.is_changed(op) { "changed" } else { "unchanged" };
                return Err(format!("{op} is said to be {said}: {}\n{}", op_line(program, op), print(program)));
            }
        }
    }
    Ok(())
}

/// Both programs have the same outputs and effects wherever the first one runs.
fn same_outcome(before: &Program, after: &Program, setting: Setting) -> Result<usize, String> {
    let policy = Policy { opaque: setting.level == Level::Full, random: setting.options.keep_random };
    let mut worlds = 0;
    for seed in 0..WORLDS {
        let mut world = World::new(before, seed);
        let Ok(expected) = world.run(before, policy) else { continue };
        worlds += 1;
        let outcome = world.run(after, policy);
        if outcome.as_ref() != Ok(&expected) {
            return Err(format!(
                "the outcome differs in world {seed}: {expected:?} and {outcome:?}\nbefore:\n{}after:\n{}",
                print(before),
                print(after)
            ));
        }
    }
    Ok(worlds)
}
