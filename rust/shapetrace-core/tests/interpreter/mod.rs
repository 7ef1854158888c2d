//! A small interpreter: what a program computes and which effects it has, in some world.
//!
//! Numbers are computed exactly, as [`evaluate`] does. Tensors, and all that is not exact, are
//! terms: a hash of what was applied to what. A world holds the inputs and the hidden shapes of
//! tensors. It is made for the program as it was recorded, and asked again for the optimized one.
//!
//! What an op with a scope inside makes is what the scope makes. A value belongs to its first
//! producer in a scope. Ops that draw random numbers or have effects make something of their
//! own, named by their result, so that merging two of them shows.

use rustc_hash::FxHashMap;
use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{Number, NumberType, Op, OpFlags, Program, ScalarOp, Scope, SymbolFlags, Value, ValueKind};
use shapetrace_core::passes::shape_arithmetic::rules::evaluate;

/// What a value is while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Datum {
    /// A number that is known exactly.
    Number(Number),
    /// Something made by applying symbols to inputs, by its hash.
    Term(u64),
}

/// What a run shows to the outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The outputs, in order.
    pub(crate) outputs: Vec<Datum>,
    /// The effects, in order: what was applied to what. The return is the last.
    pub(crate) effects: Vec<(String, Vec<Datum>)>,
}

/// Why there is nothing to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// The arithmetic raises, or leaves 64 bits.
    Raises,
    /// A tensor would have a negative dimension.
    NegativeDimension,
}

/// Which ops count as effects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policy {
    /// Foreign ops that make nothing.
    pub(crate) opaque: bool,
    /// Random ops.
    pub(crate) random: bool,
}

/// Inputs and hidden shapes.
pub(crate) struct World {
    seed: u64,
    /// A class of dimensions and numbers that are one number, because they share a name.
    class_of_dimension: FxHashMap<(Value, usize), usize>,
    class_of_value: FxHashMap<Value, usize>,
    /// What the members of a class are, once that is known.
    known: Vec<Option<Number>>,
}

impl World {
    /// A world for the program as it was recorded.
    pub(crate) fn new(program: &Program, seed: u64) -> Self {
        let mut parents: Vec<usize> = Vec::new();
        let (mut class_of_dimension, mut class_of_value) = (FxHashMap::default(), FxHashMap::default());
        let queries = program.ops().filter_map(|op| Some((op, program.shape_query(op)?)));
        let dimensions = queries.flat_map(|(op, tensor)| {
            let results = program.results(op).iter().enumerate();
            results.filter_map(move |(position, result)| Some((tensor, position, result.get()?)))
        });
        let mentions = program.shape_mentions().iter().map(|m| (m.tensor, m.position as usize, m.number));
        for (tensor, position, value) in dimensions.chain(mentions) {
            let dimension = *class_of_dimension.entry((tensor, position)).or_insert_with(|| new_class(&mut parents));
            let number = *class_of_value.entry(value).or_insert_with(|| new_class(&mut parents));
            let (a, b) = (root(&mut parents, dimension), root(&mut parents, number));
            parents[a] = b;
        }
        for class in class_of_dimension.values_mut().chain(class_of_value.values_mut()) {
            *class = root(&mut parents, *class);
        }
        let known = vec![None; parents.len()];
        Self { seed, class_of_dimension, class_of_value, known }
    }

    /// A dimension: what is known of it, or something not negative.
    fn dimension(&mut self, tensor: Value, position: usize) -> Number {
        let Some(&class) = self.class_of_dimension.get(&(tensor, position)) else {
            return small(hash(&[self.seed, 11, tensor.index() as u64, position as u64]), false);
        };
        let drawn = small(hash(&[self.seed, 12, class as u64]), false);
        *self.known[class].get_or_insert(drawn)
    }

    /// A number came to be known under a name.
    fn learn(&mut self, value: Value, datum: Datum) {
        if let (Some(&class), Datum::Number(number @ Number::Int(_))) = (self.class_of_value.get(&value), datum) {
            self.known[class].get_or_insert(number);
        }
    }

    fn input(&mut self, program: &Program, value: Value) -> Datum {
        let random = hash(&[self.seed, 13, value.index() as u64]);
        self.draw(program, value, random)
    }

    /// Something of the kind of the value, that depends on `random` alone; but a number that is a
    /// dimension under some name is that dimension.
    fn draw(&mut self, program: &Program, value: Value, random: u64) -> Datum {
        match program.value_kind(value) {
            ValueKind::Number(NumberType::Int) => match self.class_of_value.get(&value) {
                Some(&class) => Datum::Number(*self.known[class].get_or_insert(small(random, false))),
                None => Datum::Number(small(random, true)),
            },
            ValueKind::Number(NumberType::Bool) => Datum::Number(Number::Bool(random % 2 == 0)),
            _ => Datum::Term(random),
        }
    }

    /// Runs a program: the one that the world was made for, or one that was made from it.
    pub(crate) fn run(&mut self, program: &Program, policy: Policy) -> Result<Outcome, Stuck> {
        let mut run = Run {
            program,
            policy,
            world: self,
            current: vec![None; program.value_count()],
            undo: Vec::new(),
            outcome: Outcome::default(),
        };
        run.all()?;
        Ok(run.outcome)
    }
}

fn new_class(parents: &mut Vec<usize>) -> usize {
    parents.push(parents.len());
    parents.len() - 1
}

fn root(parents: &mut [usize], mut class: usize) -> usize {
    while parents[class] != class {
        parents[class] = parents[parents[class]];
        class = parents[class];
    }
    class
}

fn small(random: u64, signed: bool) -> Number {
    const SMALL: [i64; 8] = [0, 1, 2, 3, 4, 7, 12, 64];
    let magnitude = SMALL[(random % 8) as usize];
    Number::Int(if signed && random & 0x100 != 0 { -magnitude } else { magnitude })
}

/// A hash that is the same everywhere and every time.
fn hash(words: &[u64]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for &word in words {
        state = (state ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 29;
        state = state.wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 32;
    }
    state
}

fn hash_text(text: &str) -> u64 {
    hash(&text.bytes().map(u64::from).collect::<Vec<_>>())
}

fn hash_datum(datum: Datum) -> u64 {
    match datum {
        Datum::Number(Number::Bool(b)) => hash(&[1, u64::from(b)]),
        Datum::Number(Number::Int(i)) => hash(&[2, u64::from_ne_bytes(i.to_ne_bytes())]),
        Datum::Number(Number::Float(x)) => hash(&[3, x.to_bits()]),
        Datum::Number(Number::Type(t)) => hash(&[4, t as u64]),
        Datum::Number(Number::Opaque(o)) => hash(&[5, u64::from(o)]),
        Datum::Term(term) => hash(&[6, term]),
    }
}

struct Run<'a> {
    program: &'a Program,
    policy: Policy,
    world: &'a mut World,
    /// What a value is in the innermost scope that has it, and the depth of that scope.
    current: Vec<Option<(usize, Datum)>>,
    undo: Vec<(Value, Option<(usize, Datum)>)>,
    outcome: Outcome,
}

struct Frame {
    ops: std::ops::Range<usize>,
    undo_start: usize,
    owner: Option<(Op, Vec<Datum>)>,
}

impl Run<'_> {
    fn all(&mut self) -> Result<(), Stuck> {
        let program = self.program;
        let mut frames = vec![Frame { ops: program.scope_range(Scope::TOP), undo_start: 0, owner: None }];
        while let Some(frame) = frames.last_mut() {
            let Some(op) = frame.ops.next().map(Op::from_index) else {
                let frame = frames.pop().expect("there is one");
                let depth = frames.len();
                if let Some((owner, operands)) = frame.owner {
                    // What the scope made, as far as it is what the owner makes.
                    let made: Vec<Option<Datum>> = program
                        .results(owner)
                        .iter()
                        .map(|slot| slot.get().and_then(|value| self.at_depth(value, depth + 1)))
                        .collect();
                    self.leave(frame.undo_start);
                    self.finish(owner, &operands, depth, &made);
                } else {
                    for &value in program.outputs() {
                        let datum = self.read(value);
                        self.outcome.outputs.push(datum);
                    }
                }
                continue;
            };
            let depth = frames.len();
            let operands: Vec<Datum> = program
                .operands(op)
                .iter()
                .map(|operand| match (operand.value(), operand.constant()) {
                    (Some(value), _) => self.read(value),
                    (_, Some(constant)) => Datum::Number(program.constant(constant)),
                    _ => unreachable!("an operand is a value or a constant"),
                })
                .collect();
            self.note_effect(op, &operands);
            if let Some(inside) = program.op_scope(op) {
                let undo_start = self.undo.len();
                for (operand, &datum) in program.operands(op).iter().zip(&operands) {
                    if let Some(value) = operand.value() {
                        self.define(value, depth + 1, datum);
                    }
                }
                frames.push(Frame { ops: program.scope_range(inside), undo_start, owner: Some((op, operands)) });
            } else {
                let made = self.compute(op, &operands)?;
                self.finish(op, &operands, depth, &made);
            }
        }
        Ok(())
    }

    fn at_depth(&self, value: Value, depth: usize) -> Option<Datum> {
        self.current[value.index()].filter(|&(at, _)| at == depth).map(|(_, datum)| datum)
    }

    fn read(&mut self, value: Value) -> Datum {
        match self.current[value.index()] {
            Some((_, datum)) => datum,
            None => self.world.input(self.program, value),
        }
    }

    fn define(&mut self, value: Value, depth: usize, datum: Datum) {
        if self.at_depth(value, depth).is_none() {
            self.undo.push((value, self.current[value.index()]));
            self.current[value.index()] = Some((depth, datum));
        }
    }

    fn leave(&mut self, undo_start: usize) {
        for (value, before) in self.undo.drain(undo_start..).rev() {
            self.current[value.index()] = before;
        }
    }

    /// Defines what the op makes and was not given.
    fn finish(&mut self, op: Op, operands: &[Datum], depth: usize, made: &[Option<Datum>]) {
        let program = self.program;
        let flags = program.symbol_flags(op);
        if flags.contains(SymbolFlags::DEFINES_NOTHING) {
            return;
        }
        let own = program.flags(op).contains(OpFlags::EFFECT)
            || flags.intersects(SymbolFlags::EFFECT | SymbolFlags::RANDOM | SymbolFlags::IN_PLACE);
        let given: Vec<Value> = program.operand_values(op).collect();
        let given: rustc_hash::FxHashSet<Value> = given.into_iter().collect();
        let symbol = hash_text(&program.symbol(op).name);
        let inputs = hash(&operands.iter().map(|&datum| hash_datum(datum)).collect::<Vec<_>>());
        for (position, slot) in program.results(op).iter().enumerate() {
            let Some(value) = slot.get().filter(|value| !given.contains(value)) else { continue };
            let identity = if own { value.index() as u64 } else { 0 };
            let random = hash(&[symbol, inputs, position as u64, identity]);
            let datum = made[position].unwrap_or_else(|| self.world.draw(program, value, random));
            self.define(value, depth, datum);
            self.world.learn(value, datum);
        }
    }

    fn note_effect(&mut self, op: Op, operands: &[Datum]) {
        let program = self.program;
        let flags = program.symbol_flags(op);
        let tagged = program.flags(op).contains(OpFlags::EFFECT) || flags.contains(SymbolFlags::RETURN);
        let declared = !flags.contains(SymbolFlags::NO_EFFECT) && !program.flags(op).contains(OpFlags::NO_EFFECT);
        let opaque = !flags.contains(SymbolFlags::TRUSTED)
            && program.op_scope(op).is_none()
            && program.result_values(op).next().is_none();
        let by_symbol = flags.contains(SymbolFlags::EFFECT)
            || (self.policy.random && flags.contains(SymbolFlags::RANDOM))
            || (self.policy.opaque && opaque);
        if tagged || (declared && by_symbol) {
            self.outcome.effects.push((program.symbol(op).name.clone(), operands.to_vec()));
        }
    }

    /// What an op with nothing inside makes, where that is more than a term.
    fn compute(&mut self, op: Op, operands: &[Datum]) -> Result<Vec<Option<Datum>>, Stuck> {
        let program = self.program;
        if let Some(tensor) = program.shape_query(op) {
            let mut made = Vec::new();
            for (position, slot) in program.results(op).iter().enumerate() {
                let number = slot.get().map(|_| self.world.dimension(tensor, position));
                if number.is_some_and(|number| number.as_int() < Some(0)) {
                    return Err(Stuck::NegativeDimension);
                }
                made.push(number.map(Datum::Number));
            }
            return Ok(made);
        }
        let mut made = vec![None; program.results(op).len()];
        if let Some((scalar, result)) = program.scalar_op(op) {
            let target = program.operands(op).get(1).and_then(|operand| Some(program.constant(operand.constant()?)));
            let own_type = program.operand_values(op).next().map(|value| program.value_kind(value));
            made[0] = match (scalar, target, own_type) {
                // Also of a float that is not known exactly.
                (ScalarOp::Convert, Some(Number::Type(to)), Some(ValueKind::Number(from))) if to == from => {
                    Some(operands[0])
                }
                _ => apply(scalar, operands)?,
            };
            if made[0].is_none() {
                // Not computed, but the same number for the same operands, under every name.
                let inputs: Vec<u64> = operands.iter().map(|&datum| hash_datum(datum)).collect();
                let random = hash(&[hash_text(scalar.name()), hash(&inputs)]);
                made[0] = Some(match program.value_kind(result) {
                    ValueKind::Number(NumberType::Int) => Datum::Number(small(random, true)),
                    ValueKind::Number(NumberType::Bool) => Datum::Number(Number::Bool(random % 2 == 0)),
                    _ => Datum::Term(random),
                });
            }
        }
        Ok(made)
    }
}

/// Scalar arithmetic; none where the result is a term.
fn apply(scalar: ScalarOp, operands: &[Datum]) -> Result<Option<Datum>, Stuck> {
    let number = |index: usize| match operands.get(index.min(operands.len() - 1)) {
        Some(&Datum::Number(number)) => Some(number),
        _ => None,
    };
    let (Some(a), Some(b)) = (number(0), number(1)) else { return Ok(None) };
    if let Some(result) = evaluate(scalar, a, b) {
        return Ok(Some(Datum::Number(result)));
    }
    let exact = a.as_int().is_some() && (b.as_int().is_some() || matches!(b, Number::Type(_)));
    if exact && scalar != ScalarOp::Pow {
        return Err(Stuck::Raises);
    }
    Ok(None)
}
