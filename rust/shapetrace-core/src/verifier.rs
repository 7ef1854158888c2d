//! Checks that a program is what the passes take it to be, and gathers all that is not.
//!
//! - **Every use has a definition before it, in its own scope.** Defined in a scope is what the
//!   owner of the scope takes, and what an op before made. At the top level inputs are defined
//!   from the start: those that the program declares ([`Program::inputs`]), or, where it declares
//!   none, every value that nothing in the whole program defines. Outputs count as used at the end.
//!   An op may make what is an input as well, as ops that unpack arguments do.
//! - **Scopes are isolated from above.** A value of a scope around that is not an operand of the
//!   owner is told apart from one that is not defined at all.
//! - **A value is defined once in a scope**, in the form [`Form::Optimized`]. Before, a value may
//!   have several producers; the first counts. An op that makes a value again may be there
//!   afterwards only because it stays for another reason: it, or something inside it, has an
//!   effect, draws random numbers or writes to an argument; it is inside a fusion; or it makes
//!   something else as well and its printer cannot leave out a result.
//! - **The return is the last op of its scope**, and the only one there.
//! - **Nothing with an effect is inside an op that is declared pure**, nor is such an op tagged.
//! - **Result slots are what they can be:** a dimension is an integer, and a slot without a value
//!   belongs to an op whose output has a literal.
//!
//! An op whose own operands contain a result does not define it. What comments, prints and the
//! return write defines nothing. Linear in the size of the program, and no recursion.

use rustc_hash::FxHashSet;

use crate::analysis::effects::{find_effects, has_own_effect, EffectRules, Effects};
use crate::entity::{BitSet, Entity, PackedOption};
use crate::ir::{NumberType, Op, OpFlags, Program, Scope, SymbolFlags, Value, ValueKind};

/// Which form of a program is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// As it is recorded: a value may have several producers in a scope.
    #[default]
    Traced,
    /// As the optimizer leaves it: one definition of a value in a scope.
    Optimized,
}

/// Declares [`VerifyErrorKind`] with a stable name and a message for each kind.
macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $message:literal;)*) => {
        /// What can be wrong with a program.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
        #[non_exhaustive]
        pub enum VerifyErrorKind {
            $($(#[$doc])* #[error($message)] $variant,)*
        }

        impl VerifyErrorKind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// A stable name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// Nothing defines the value, and it is no input.
    UndefinedValue = "undefined_value", "nothing defines it and it is no input";
    /// The scope defines the value, but later.
    UsedBeforeDefinition = "used_before_definition", "it is used before it is defined";
    /// Only scopes that the op cannot see define the value.
    NotVisible = "not_visible", "only other scopes define it";
    /// A scope around has the value, but the owner of the scope does not take it.
    NotIsolated = "not_isolated", "it is used from a scope around, but the owner of the scope does not take it";
    /// The scope defines the value again.
    DefinedTwice = "defined_twice", "it was defined before in the same scope";
    /// Ops stand behind the return.
    ReturnNotLast = "return_not_last", "the return is not the last op of its scope";
    /// The scope returned before.
    SeveralReturns = "several_returns", "the scope has another return";
    /// Something with an effect is inside an op that is declared pure, or is declared so itself.
    EffectInPure = "effect_in_pure", "it has an effect, but is declared pure or is inside such an op";
    /// A query writes something else than an integer.
    DimensionNotInteger = "dimension_not_integer", "a dimension is an integer";
    /// A slot without a value on an op whose output has no literal.
    EmptySlot = "empty_slot", "a result slot without a value belongs to an op with a literal in its output";
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// What is wrong.
    pub kind: VerifyErrorKind,
    /// In which scope.
    pub scope: Scope,
    /// At which op; none if it is about the outputs of the program.
    pub op: Option<Op>,
    /// With which value, where it is about one.
    pub value: Option<Value>,
    /// The name of that value.
    pub name: String,
}

impl std::error::Error for VerifyError {}

impl std::fmt::Display for VerifyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.op {
            Some(op) => write!(f, "{op} in {}: ", self.scope)?,
            None => write!(f, "outputs of {}: ", self.scope)?,
        }
        if self.value.is_some() {
            write!(f, "%{}: ", self.name)?;
        }
        write!(f, "{}", self.kind)
    }
}

impl VerifyError {
    /// The message with the line of the op and the lines around it.
    ///
    /// # Panics
    /// If the error is about another program.
    pub fn explain(&self, program: &Program) -> String {
        let mut text = self.to_string();
        let Some(op) = self.op else { return text };
        let scope = program.scope_range(self.scope);
        let first = scope.start.max(op.index().saturating_sub(2));
        for index in first..scope.end.min(op.index() + 2) {
            let near = Op::from_index(index);
            text.push_str(if near == op { "\n> " } else { "\n  " });
            text.push_str(&crate::text::op_line(program, near));
        }
        text
    }
}

/// Checks a program as it is recorded.
///
/// ```
/// use shapetrace_core::{text::parse, verifier::{verify, VerifyErrorKind}};
///
/// let program = parse("trace(%x) {\n  %y = ltorch.sin(%z)\n  return %y\n}")?;
/// let errors = verify(&program);
/// assert_eq!(errors[0].kind, VerifyErrorKind::UndefinedValue);
/// assert_eq!(errors[0].to_string(), "op0 in scope0: %z: nothing defines it and it is no input");
/// # Ok::<(), shapetrace_core::text::ParseError>(())
/// ```
pub fn verify(program: &Program) -> Vec<VerifyError> {
    verify_form(program, Form::Traced)
}

/// Checks a program; see the [module](self).
pub fn verify_form(program: &Program, form: Form) -> Vec<VerifyError> {
    let mut verifier = Verifier::new(program, form);
    verifier.run();
    verifier.errors
}

struct Verifier<'a> {
    program: &'a Program,
    form: Form,
    effects: Effects,
    /// The innermost open scope in which a value is defined.
    innermost: Vec<PackedOption<Scope>>,
    /// What to put back when a scope ends.
    undo: Vec<(Value, PackedOption<Scope>)>,
    inputs: BitSet,
    /// What any op of the program defines.
    defined: BitSet,
    /// What the owner of a scope may have read of a collection: the scope may define it for itself.
    held: BitSet,
    /// Which scopes define which values; made when the first error needs it.
    definitions: Option<FxHashSet<(Scope, Value)>>,
    errors: Vec<VerifyError>,
}

/// A scope that is being walked.
struct OpenScope {
    scope: Scope,
    ops: std::ops::Range<usize>,
    undo_start: usize,
    /// Inside an op that is declared pure.
    pure: bool,
    in_fusion: bool,
    returned: Option<Op>,
}

impl<'a> Verifier<'a> {
    fn new(program: &'a Program, form: Form) -> Self {
        let mut effects = Effects::default();
        if form == Form::Optimized {
            find_effects(program, EffectRules { opaque_ops: true, random_ops: false }, &mut effects);
        }
        let mut defined = BitSet::default();
        defined.reset(program.value_count());
        for value in program.ops().flat_map(|op| defined_by(program, op)) {
            defined.insert(value.index());
        }
        let (mut inputs, mut held) = (BitSet::default(), BitSet::default());
        inputs.reset(program.value_count());
        held.reset(program.value_count());
        if program.inputs().is_empty() {
            for value in program.values().filter(|value| !defined.contains(value.index())) {
                inputs.insert(value.index());
            }
        } else {
            for &value in program.inputs() {
                inputs.insert(value.index());
            }
        }
        Self {
            program,
            form,
            effects,
            innermost: vec![PackedOption::NONE; program.value_count()],
            undo: Vec::new(),
            inputs,
            defined,
            held,
            definitions: None,
            errors: Vec::new(),
        }
    }

    fn run(&mut self) {
        let program = self.program;
        let mut open = vec![self.open(Scope::TOP, false, false)];
        while let Some(current) = open.last_mut() {
            let scope = current.scope;
            let Some(op) = current.ops.next().map(Op::from_index) else {
                if scope == Scope::TOP {
                    for &value in program.outputs() {
                        self.check_use(scope, None, value);
                    }
                }
                self.undo_to(current.undo_start);
                open.pop();
                // What the owner makes is there behind it, not inside it.
                if let (Some(around), Some(owner)) = (open.last(), program.scope_owner(scope)) {
                    self.define_results(around.scope, owner, around.in_fusion);
                }
                continue;
            };
            self.check_return(current, op);
            self.check_effect(scope, op, current.pure);
            for value in program.operand_values(op) {
                self.check_use(scope, Some(op), value);
            }
            self.check_slots(scope, op);
            let (pure, in_fusion) = (current.pure, current.in_fusion);
            if let Some(inside) = program.op_scope(op) {
                let flags = program.symbol_flags(op);
                let pure = pure || flags.contains(SymbolFlags::PURE);
                let in_fusion = in_fusion || flags.contains(SymbolFlags::FUSION);
                open.push(self.open(inside, pure, in_fusion));
                let may_be_held = program.flags(op).contains(OpFlags::FIXED_NAMES);
                for value in program.operand_values(op) {
                    self.define(inside, value);
                    if may_be_held {
                        self.held.insert(value.index());
                    } else {
                        self.held.remove(value.index());
                    }
                }
            } else {
                self.define_results(scope, op, in_fusion);
            }
        }
    }

    fn open(&self, scope: Scope, pure: bool, in_fusion: bool) -> OpenScope {
        let ops = self.program.scope_range(scope);
        OpenScope { scope, ops, undo_start: self.undo.len(), pure, in_fusion, returned: None }
    }

    /// Makes a value visible in a scope. `false` if it was before.
    fn define(&mut self, scope: Scope, value: Value) -> bool {
        let before = std::mem::replace(&mut self.innermost[value.index()], scope.into());
        if before == scope.into() {
            return false;
        }
        self.undo.push((value, before));
        true
    }

    fn undo_to(&mut self, start: usize) {
        for (value, before) in self.undo.drain(start..).rev() {
            self.innermost[value.index()] = before;
        }
    }

    fn define_results(&mut self, scope: Scope, op: Op, in_fusion: bool) {
        let program = self.program;
        let mut again = Vec::new();
        let mut defines = false;
        for value in defined_by(program, op) {
            if self.define(scope, value) || self.held.contains(value.index()) {
                self.held.remove(value.index());
                defines = true;
            } else {
                again.push(value);
            }
        }
        if self.form == Form::Traced || again.is_empty() || in_fusion || !self.effects.may_merge(op) {
            return;
        }
        let cannot_leave_out =
            !program.can_leave_out_results(op) || defined_by(program, op).count() != program.result_values(op).count();
        if defines && cannot_leave_out {
            return;
        }
        for value in again {
            self.report(VerifyErrorKind::DefinedTwice, scope, Some(op), Some(value));
        }
    }

    fn check_use(&mut self, scope: Scope, op: Option<Op>, value: Value) {
        let innermost = self.innermost[value.index()];
        if innermost == scope.into() {
            return;
        }
        let program = self.program;
        let is_input = self.inputs.contains(value.index());
        if scope == Scope::TOP && is_input {
            return;
        }
        let definitions = self.definitions.get_or_insert_with(|| {
            let in_scope = |scope| program.scope_ops(scope).map(move |op| (scope, op));
            let of_op = |(scope, op)| defined_by(program, op).map(move |value| (scope, value));
            program.scopes().flat_map(in_scope).flat_map(of_op).collect()
        });
        let kind = if definitions.contains(&(scope, value)) {
            VerifyErrorKind::UsedBeforeDefinition
        } else if !innermost.is_none() || is_input {
            VerifyErrorKind::NotIsolated
        } else if self.defined.contains(value.index()) {
            VerifyErrorKind::NotVisible
        } else {
            VerifyErrorKind::UndefinedValue
        };
        self.report(kind, scope, op, Some(value));
    }

    fn check_return(&mut self, current: &mut OpenScope, op: Op) {
        let is_return = self.program.symbol_flags(op).contains(SymbolFlags::RETURN);
        match current.returned {
            Some(_) if is_return => self.report(VerifyErrorKind::SeveralReturns, current.scope, Some(op), None),
            Some(first) if first.index() + 1 == op.index() => {
                self.report(VerifyErrorKind::ReturnNotLast, current.scope, Some(first), None);
            }
            None if is_return => current.returned = Some(op),
            _ => {}
        }
    }

    fn check_effect(&mut self, scope: Scope, op: Op, inside_pure: bool) {
        let flags = self.program.symbol_flags(op);
        if (inside_pure || flags.contains(SymbolFlags::PURE))
            && !flags.contains(SymbolFlags::RETURN)
            && has_own_effect(self.program, op, EffectRules::default())
        {
            self.report(VerifyErrorKind::EffectInPure, scope, Some(op), None);
        }
    }

    fn check_slots(&mut self, scope: Scope, op: Op) {
        let program = self.program;
        let has_hole = program.results(op).iter().any(|result| result.is_none());
        if has_hole && !program.flags(op).contains(OpFlags::LITERAL_RESULT) {
            self.report(VerifyErrorKind::EmptySlot, scope, Some(op), None);
        }
        if program.shape_query(op).is_some() {
            for value in program.result_values(op) {
                if program.value_kind(value) != ValueKind::Number(NumberType::Int) {
                    self.report(VerifyErrorKind::DimensionNotInteger, scope, Some(op), Some(value));
                }
            }
        }
    }

    fn report(&mut self, kind: VerifyErrorKind, scope: Scope, op: Option<Op>, value: Option<Value>) {
        let name = value.map(|value| self.program.value_name(value).into_owned()).unwrap_or_default();
        self.errors.push(VerifyError { kind, scope, op, value, name });
    }
}

/// The values that the op defines where they are not defined yet: those that it was not given.
fn defined_by(program: &Program, op: Op) -> impl Iterator<Item = Value> + '_ {
    const SCAN_LIMIT: usize = 64;
    let flags = program.symbol_flags(op);
    let slots = if flags.contains(SymbolFlags::DEFINES_NOTHING) { &[] } else { program.results(op) };
    let operands = program.operands(op);
    let given: Option<FxHashSet<Value>> =
        (slots.len() * operands.len() > SCAN_LIMIT).then(|| program.operand_values(op).collect());
    slots.iter().filter_map(|slot| slot.get()).filter(move |&value| match &given {
        Some(given) => !given.contains(&value),
        None => !operands.contains(&value.into()),
    })
}
