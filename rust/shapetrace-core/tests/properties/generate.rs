//! Random programs.
//!
//! A recipe is a list of steps of a few numbers each; every list makes a program, so proptest
//! shrinks a failure by leaving out steps. Programs keep to what the host guarantees: a name is
//! one value in the whole program, scopes use what their owner takes, and a number that is a
//! dimension under several names is one number.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rustc_hash::FxHashMap;
use shapetrace_core::entity::PackedOption;
use shapetrace_core::ir::{
    Number, NumberType, OpFlags, OpSpec, Operand, OutlineBuilder, Program, ScalarOp, Symbol, SymbolData, SymbolFlags,
    Value, ValueKind,
};
use shapetrace_core::text::symbol_flags;

/// One step: what to do, and with what.
pub(crate) type Step = [u16; 6];

/// Lists of steps.
pub(crate) fn recipes(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<Step>(), 1..longest)
}

/// What a program has, to see that all of it is reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Features(BTreeMap<&'static str, usize>);

impl Features {
    pub(crate) fn count(&mut self, feature: &'static str) {
        *self.0.entry(feature).or_default() += 1;
    }

    /// How many programs of those added have a feature.
    pub(crate) fn add_to(&self, totals: &mut BTreeMap<&'static str, usize>) {
        for feature in self.0.keys() {
            *totals.entry(feature).or_default() += 1;
        }
    }
}

/// Switches of the generator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    /// Inner ops may use outer numbers that the owner does not take.
    pub(crate) captures: bool,
    /// Inputs are not declared.
    pub(crate) undeclared_inputs: bool,
}

pub(crate) struct Generated {
    pub(crate) program: Program,
    pub(crate) features: Features,
}

#[derive(Clone)]
struct Node {
    symbol: Symbol,
    flags: OpFlags,
    operands: Vec<Operand>,
    results: Vec<Option<Value>>,
    inside: Option<Vec<Node>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Composite,
    Effectful,
}

struct Frame {
    tensors: Vec<Value>,
    numbers: Vec<Value>,
    nodes: Vec<Node>,
    /// What the owner of the frame is, without its inside; none at the top level.
    owner: Option<(Node, Kind)>,
}

struct Generator {
    outline: OutlineBuilder,
    symbols: FxHashMap<(String, SymbolFlags), Symbol>,
    fresh: usize,
    style: Style,
    types: FxHashMap<Value, NumberType>,
    ranks: FxHashMap<Value, usize>,
    dimension_names: FxHashMap<(Value, usize), Vec<Value>>,
    frames: Vec<Frame>,
    /// Ops of all scopes, to make again elsewhere.
    history: Vec<Node>,
    outputs: Vec<Value>,
    pinned: Vec<Value>,
    features: Features,
}

/// The program of a recipe.
pub(crate) fn generate(recipe: &[Step], style: Style) -> Generated {
    let mut generator = Generator {
        outline: OutlineBuilder::default(),
        symbols: FxHashMap::default(),
        fresh: 0,
        style,
        types: FxHashMap::default(),
        ranks: FxHashMap::default(),
        dimension_names: FxHashMap::default(),
        frames: Vec::new(),
        history: Vec::new(),
        outputs: Vec::new(),
        pinned: Vec::new(),
        features: Features::default(),
    };
    let mut top = Frame { tensors: Vec::new(), numbers: Vec::new(), nodes: Vec::new(), owner: None };
    for _ in 0..2 {
        let x = generator.tensor("x", 2);
        top.tensors.push(x);
    }
    for number_type in [NumberType::Int, NumberType::Int, NumberType::Bool, NumberType::Float] {
        let n = generator.number("n", number_type);
        top.numbers.push(n);
    }
    for &value in top.tensors.iter().chain(&top.numbers).filter(|_| !style.undeclared_inputs) {
        generator.outline.builder().input(value).expect("a value");
    }
    generator.frames.push(top);
    for step in recipe {
        generator.step(step);
    }
    let last = recipe.last().copied().unwrap_or_default();
    generator.finish(&last)
}

fn pick<T: Copy>(items: &[T], index: u16) -> Option<T> {
    (!items.is_empty()).then(|| items[index as usize % items.len()])
}

impl Generator {
    fn symbol(&mut self, name: &str, more: SymbolFlags) -> Symbol {
        let (usual, scalar) = symbol_flags(name);
        let flags = usual | more;
        let builder = self.outline.builder();
        *self.symbols.entry((name.to_owned(), flags)).or_insert_with(|| {
            builder.symbol(SymbolData { name: name.to_owned(), flags, scalar }).expect("few symbols")
        })
    }

    fn name(&mut self, prefix: &str) -> String {
        self.fresh += 1;
        format!("{prefix}{}", self.fresh)
    }

    fn tensor(&mut self, prefix: &str, rank: usize) -> Value {
        let name = self.name(prefix);
        let value = self.outline.builder().named_value(&name, ValueKind::Tensor).expect("few values");
        self.ranks.insert(value, rank);
        value
    }

    fn number(&mut self, prefix: &str, number_type: NumberType) -> Value {
        let name = self.name(prefix);
        let kind = ValueKind::Number(number_type);
        let value = self.outline.builder().named_value(&name, kind).expect("few values");
        self.types.insert(value, number_type);
        value
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the top level")
    }

    fn here(&self) -> &Frame {
        self.frames.last().expect("the top level")
    }

    fn some_tensor(&mut self, index: u16) -> Option<Value> {
        pick(&self.frame().tensors.clone(), index)
    }

    fn some_number(&mut self, index: u16) -> Option<Value> {
        if self.style.captures && index % 16 == 15 && self.frames.len() > 1 {
            let outer: Vec<Value> = self.frames.iter().flat_map(|frame| frame.numbers.iter().copied()).collect();
            self.features.count("capture");
            return pick(&outer, index / 16);
        }
        pick(&self.frame().numbers.clone(), index)
    }

    /// Adds an op to the open scope; what it makes is visible there from now on.
    fn push(&mut self, node: Node) {
        for value in node.results.iter().flatten().copied() {
            let is_number = self.types.contains_key(&value);
            let frame = self.frame();
            let visible = if is_number { &mut frame.numbers } else { &mut frame.tensors };
            if !visible.contains(&value) {
                visible.push(value);
            }
        }
        self.history.push(node.clone());
        self.frame().nodes.push(node);
    }

    fn op(&mut self, name: &str, more: SymbolFlags, operands: Vec<Operand>, results: Vec<Option<Value>>) -> Node {
        let symbol = self.symbol(name, more);
        let has_literal = results.is_empty() || results.iter().any(Option::is_none);
        let flags = if has_literal { OpFlags::LITERAL_RESULT } else { OpFlags::empty() };
        Node { symbol, flags, operands, results, inside: None }
    }

    fn step(&mut self, step: &Step) {
        let &[what, a, b, c, d, e] = step;
        match what % 24 {
            0 | 1 => self.tensor_op(a, b, c, d),
            2 | 3 => self.query(a, b, c, None),
            4 | 5 => self.arithmetic(a, b, c, d, false),
            6 => self.arithmetic(a, b, c, d, true),
            7 | 8 => self.open(a, b, c, d),
            9 => self.close(a, b),
            10 => self.again_here(a),
            11 | 12 => self.again_elsewhere(a),
            13 => self.under_other_names(a),
            14 => self.effect(a, b, c),
            15 => self.random(a, b),
            16 => self.in_place(a, b),
            17 => self.fusion(a, b, c, d, e),
            18 => self.mark(a, b),
            19 => self.number_from_elsewhere(a, b),
            20 => self.query(a, b, c, Some(d)),
            21 => self.floor_division(a, b),
            22 => self.partly_known(a, b),
            _ => self.convert(a, b),
        }
    }

    fn tensor_op(&mut self, a: u16, b: u16, c: u16, d: u16) {
        let Some(x) = self.some_tensor(a) else { return };
        let mut operands = vec![x.into()];
        if b % 3 == 0 {
            operands.extend(self.some_tensor(b).map(Operand::from));
        }
        let rank = usize::from(c % 4);
        let result = self.tensor("t", rank);
        for position in 0..rank {
            let Some(number) = self.some_number(d.wrapping_add(position as u16 * 7)) else { continue };
            if d % 2 == 0 && self.types[&number] == NumberType::Int {
                operands.push(number.into());
                self.outline.builder().shape_mention(result, position as u32, number).expect("values");
                self.dimension_names.entry((result, position)).or_default().push(number);
                self.features.count("shape mention");
            }
        }
        let name = ["prims.sin", "prims.reshape", "ltorch.f", "my.kernel"][usize::from(b % 4)];
        let mut node = self.op(name, SymbolFlags::empty(), operands, vec![Some(result)]);
        node.flags.set(OpFlags::KEYWORDS, d % 7 == 3);
        if d % 16 == 9 {
            node.flags |= OpFlags::FIXED_NAMES;
            self.features.count("fixed names");
        }
        self.push(node);
    }

    fn query(&mut self, a: u16, b: u16, c: u16, claimed: Option<u16>) {
        let Some(x) = self.some_tensor(a) else { return };
        let mut results = Vec::new();
        for position in 0..self.ranks[&x] {
            let choice = b.wrapping_shr(4 * position as u32) % 8;
            let known = self.dimension_names.get(&(x, position)).and_then(|names| pick(names, c));
            results.push(match (choice, known) {
                (0, _) => None,
                (1..=3, Some(known)) => {
                    self.features.count("query of known numbers");
                    Some(known)
                }
                _ => {
                    if known.is_some() {
                        self.features.count("dimension with two names");
                    }
                    let number = self.number("i", NumberType::Int);
                    self.dimension_names.entry((x, position)).or_default().push(number);
                    Some(number)
                }
            });
        }
        let Some(claimed) = claimed else {
            let node = self.op("prims.shape", SymbolFlags::empty(), vec![x.into()], results);
            return self.push(node);
        };
        let inner = self.op("prims.shape", SymbolFlags::empty(), vec![x.into()], results.clone());
        let more = if claimed % 3 == 0 {
            SymbolFlags::SHAPE_QUERY
        } else {
            SymbolFlags::SHAPE_QUERY | SymbolFlags::TRUSTED | SymbolFlags::USUAL_PRINTER
        };
        let mut outer = self.op("torch.shape", more, vec![x.into()], results);
        outer.inside = Some(vec![inner]);
        self.features.count("claimed query");
        self.push(outer);
    }

    fn arithmetic(&mut self, a: u16, b: u16, c: u16, d: u16, prefer_identity: bool) {
        use ScalarOp as S;
        let Some(x) = self.some_number(a) else { return };
        let scalar = pick(ScalarOp::ALL, c).expect("some");
        if scalar == S::Convert {
            return self.convert(a, b);
        }
        let type_x = self.types[&x];
        let literal = || {
            let integer = [0, 1, -1, 2, 3, 7][usize::from(d % 6)];
            if prefer_identity && type_x == NumberType::Bool {
                Number::Bool(d % 2 == 0)
            } else {
                Number::Int(integer)
            }
        };
        let (second, type_y): (Operand, NumberType) = if prefer_identity || b % 3 == 0 {
            let number = literal();
            let operand = self.outline.builder().constant(number).expect("few constants").into();
            (operand, number.number_type())
        } else {
            let y = self.some_number(b).unwrap_or(x);
            (y.into(), self.types[&y])
        };
        let types = [type_x, type_y];
        let bits = matches!(scalar, S::BitwiseAnd | S::BitwiseOr | S::BitwiseXor);
        if bits && types.contains(&NumberType::Float) {
            return;
        }
        let number_type = match scalar {
            S::Eq | S::Ne | S::Lt | S::Le | S::Gt | S::Ge | S::Signbit => NumberType::Bool,
            S::Fmod => NumberType::Float,
            _ if bits && types == [NumberType::Bool; 2] => NumberType::Bool,
            S::Neg | S::Abs if type_x == NumberType::Float => NumberType::Float,
            S::Neg | S::Abs => NumberType::Int,
            _ if types.contains(&NumberType::Float) => NumberType::Float,
            _ => NumberType::Int,
        };
        let mut operands: Vec<Operand> = vec![x.into()];
        if scalar.arity() == 2 {
            operands.push(second);
            if d % 5 == 0 {
                operands.swap(0, 1);
            }
        }
        let result = self.number("a", number_type);
        let node = self.op(&format!("prims.{}", scalar.name()), SymbolFlags::empty(), operands, vec![Some(result)]);
        self.push(node);
    }

    fn convert(&mut self, a: u16, b: u16) {
        let Some(x) = self.some_number(a) else { return };
        let to = [NumberType::Int, NumberType::Bool, NumberType::Float][usize::from(b % 3)];
        let constant = self.outline.builder().constant(Number::Type(to)).expect("few constants");
        let result = self.number("c", to);
        let operands = vec![x.into(), constant.into()];
        let node = self.op("prims.convert_element_type", SymbolFlags::empty(), operands, vec![Some(result)]);
        self.push(node);
    }

    fn open(&mut self, a: u16, b: u16, c: u16, d: u16) {
        if self.frames.len() > 5 {
            return;
        }
        let mut tensors: Vec<Value> = self.some_tensor(a).into_iter().chain(self.some_tensor(b)).collect();
        let mut numbers: Vec<Value> = Vec::new();
        for shift in 0..c % 4 {
            numbers.extend(self.frame().numbers.get(usize::from(d.wrapping_add(shift) % 16)).copied());
        }
        tensors.dedup();
        numbers.dedup();
        let mut results = vec![Some(self.tensor("y", usize::from(b % 3)))];
        if c % 3 == 0 {
            results.push(Some(self.number("m", NumberType::Int)));
        }
        if d % 4 == 0 {
            // Handed back.
            results.push(tensors.first().copied());
        }
        let results: Vec<_> = results.into_iter().flatten().map(Some).collect();
        let operands = tensors.iter().map(|&x| x.into()).chain(numbers.iter().map(|&n| n.into())).collect();
        let (name, kind) = match a % 8 {
            0 => ("my.step", Kind::Effectful),
            1 => ("my.composite", Kind::Composite),
            2 => ("clang.g", Kind::Composite),
            _ => ("ltorch.f", Kind::Composite),
        };
        let mut node = self.op(name, SymbolFlags::empty(), operands, results);
        if kind == Kind::Effectful {
            node.flags |= OpFlags::EFFECT;
        }
        self.features.count(if self.frames.len() > 1 { "deeper nesting" } else { "nesting" });
        self.frames.push(Frame { tensors, numbers, nodes: Vec::new(), owner: Some((node, kind)) });
    }

    fn close(&mut self, a: u16, b: u16) {
        if self.frames.len() < 2 {
            return;
        }
        let (mut owner, _) = self.frame().owner.clone().expect("not the top level");
        let given = owner.operands.clone();
        for result in owner.results.clone().into_iter().flatten() {
            if given.contains(&result.into()) || a % 16 == 0 {
                continue;
            }
            if self.types.contains_key(&result) {
                self.make_number(result, a, b);
            } else if let Some(x) = self.some_tensor(b) {
                let node = self.op("prims.exp", SymbolFlags::empty(), vec![x.into()], vec![Some(result)]);
                self.push(node);
            }
        }
        let frame = self.frames.pop().expect("not the top level");
        owner.inside = Some(frame.nodes);
        self.push(owner);
    }

    /// Makes a number that was promised: a dimension, or the result of arithmetic.
    fn make_number(&mut self, result: Value, a: u16, b: u16) {
        let tensors: Vec<Value> = self.here().tensors.iter().copied().filter(|x| self.ranks[x] > 0).collect();
        if let (0, Some(x)) = (a % 2, pick(&tensors, b)) {
            self.dimension_names.entry((x, 0)).or_default().push(result);
            let mut results = vec![Some(result)];
            results.extend(std::iter::repeat_n(None, self.ranks[&x] - 1));
            let node = self.op("prims.shape", SymbolFlags::empty(), vec![x.into()], results);
            return self.push(node);
        }
        let ints: Vec<Value> =
            self.here().numbers.iter().copied().filter(|n| self.types[n] == NumberType::Int).collect();
        let literal = self.outline.builder().constant(Number::Int(i64::from(a % 3))).expect("few constants");
        let first: Operand = pick(&ints, b).map_or(literal.into(), Operand::from);
        let name = ["prims.mul", "prims.add", "prims.sub"][usize::from(b % 3)];
        let node = self.op(name, SymbolFlags::empty(), vec![first, literal.into()], vec![Some(result)]);
        self.push(node);
    }

    fn can_see(&self, node: &Node) -> bool {
        let frame = self.frames.last().expect("the top level");
        node.operands
            .iter()
            .filter_map(|operand| operand.value())
            .all(|value| frame.tensors.contains(&value) || frame.numbers.contains(&value))
    }

    fn again_here(&mut self, a: u16) {
        let nodes = &self.frame().nodes;
        let Some(node) = (!nodes.is_empty()).then(|| nodes[usize::from(a) % nodes.len()].clone()) else { return };
        self.features.count("duplicate");
        self.push(node);
    }

    fn again_elsewhere(&mut self, a: u16) {
        let seen: Vec<Node> = self.history.iter().filter(|node| self.can_see(node)).cloned().collect();
        if seen.is_empty() {
            return;
        }
        self.features.count("same op in another scope");
        self.push(seen[usize::from(a) % seen.len()].clone());
    }

    fn under_other_names(&mut self, a: u16) {
        let seen: Vec<Node> =
            self.history.iter().filter(|node| node.inside.is_none() && self.can_see(node)).cloned().collect();
        if seen.is_empty() {
            return;
        }
        let mut node = seen[usize::from(a) % seen.len()].clone();
        for result in &mut node.results {
            let Some(before) = *result else { continue };
            if node.operands.contains(&before.into()) {
                continue;
            }
            *result = Some(match (self.types.get(&before).copied(), self.ranks.get(&before).copied()) {
                (Some(number_type), _) => self.number("b", number_type),
                (None, rank) => self.tensor("u", rank.unwrap_or(0)),
            });
        }
        // A query under other names names the same dimensions.
        let is_query = self
            .symbols
            .iter()
            .any(|((_, flags), &symbol)| symbol == node.symbol && flags.contains(SymbolFlags::SHAPE_QUERY));
        if let (true, Some(x)) = (is_query, node.operands[0].value()) {
            for (position, result) in node.results.iter().enumerate() {
                if let Some(number) = result {
                    self.dimension_names.entry((x, position)).or_default().push(*number);
                }
            }
        }
        self.features.count("same op under other names");
        self.push(node);
    }

    fn effect(&mut self, a: u16, b: u16, c: u16) {
        let operands: Vec<Operand> =
            self.some_tensor(a).map(Operand::from).into_iter().chain(self.some_number(b).map(Operand::from)).collect();
        let mut node = match c % 6 {
            0 => self.op("prims.python_print", SymbolFlags::empty(), operands, vec![]),
            1 => self.op("my.save", SymbolFlags::empty(), operands, vec![]),
            2 => {
                let result = self.tensor("e", 1);
                self.op("my.update", SymbolFlags::EFFECT, operands, vec![Some(result)])
            }
            3 => {
                let result = self.number("e", NumberType::Int);
                self.op("my.count", SymbolFlags::EFFECT, operands, vec![Some(result), None])
            }
            4 => self.op("prims.comment", SymbolFlags::empty(), operands, vec![]),
            _ => {
                let mut node = self.op("ltorch.log", SymbolFlags::empty(), operands, vec![]);
                node.flags = OpFlags::EFFECT | OpFlags::EMPTY_RESULT;
                node
            }
        };
        if c % 12 == 7 {
            node.flags |= OpFlags::EFFECT;
        }
        self.features.count(if self.frames.len() > 1 { "effect inside" } else { "effect" });
        self.push(node);
    }

    fn random(&mut self, a: u16, b: u16) {
        let Some(x) = self.some_tensor(a) else { return };
        let result = self.tensor("r", usize::from(b % 3));
        let node = self.op("prims.uniform", SymbolFlags::empty(), vec![x.into()], vec![Some(result)]);
        self.features.count("random");
        self.push(node);
    }

    fn in_place(&mut self, a: u16, b: u16) {
        let Some(x) = self.some_tensor(a) else { return };
        let mut results = vec![Some(x)];
        if b % 3 == 0 {
            results.push(Some(self.tensor("p", 1)));
        }
        let name = ["ltorch.contiguous", "my.add_", "prims.unpack_trivial"][usize::from(b % 3)];
        let more = if b % 4 == 0 { SymbolFlags::IN_PLACE } else { SymbolFlags::empty() };
        let node = self.op(name, more, vec![x.into()], results);
        self.features.count("in place");
        self.push(node);
    }

    fn fusion(&mut self, a: u16, b: u16, c: u16, d: u16, e: u16) {
        let Some(x) = self.some_tensor(a) else { return };
        let number = self.some_number(b);
        let rank = self.ranks[&x];
        let mut inside = Vec::new();
        let dimensions: Vec<Option<Value>> = (0..rank)
            .map(|position| {
                let names = self.dimension_names.get(&(x, position)).cloned().unwrap_or_default();
                let number =
                    pick(&names, c).filter(|_| d % 2 == 0).unwrap_or_else(|| self.number("f", NumberType::Int));
                self.dimension_names.entry((x, position)).or_default().push(number);
                Some(number)
            })
            .collect();
        if e % 3 == 0 {
            inside.push(self.op("prims.shape", SymbolFlags::empty(), vec![x.into()], dimensions.clone()));
        }
        let y = self.tensor("z", usize::from(e % 3));
        inside.push(self.op("prims.sin", SymbolFlags::empty(), vec![x.into()], vec![Some(y)]));
        let operands = std::iter::once(x.into()).chain(number.map(Operand::from)).collect();
        let mut node = self.op("nvFusion0", SymbolFlags::empty(), operands, vec![Some(y)]);
        node.inside = Some(inside);
        self.features.count("fusion");
        self.push(node);
    }

    fn mark(&mut self, a: u16, b: u16) {
        let top = &self.frames[0];
        let visible: Vec<Value> = top.tensors.iter().chain(&top.numbers).copied().collect();
        let Some(value) = pick(&visible, a) else { return };
        if b % 2 == 0 {
            self.outputs.push(value);
        } else {
            self.features.count("pinned");
            self.pinned.push(value);
        }
    }

    fn number_from_elsewhere(&mut self, a: u16, b: u16) {
        let Some(x) = self.some_tensor(a) else { return };
        let result = self.number("k", [NumberType::Int, NumberType::Bool][usize::from(b % 2)]);
        let node = self.op("my.item", SymbolFlags::empty(), vec![x.into()], vec![Some(result)]);
        self.push(node);
    }

    /// The form in which the host records `a // b`.
    fn floor_division(&mut self, a: u16, b: u16) {
        let ints: Vec<Value> =
            self.here().numbers.iter().copied().filter(|n| self.types[n] == NumberType::Int).collect();
        let (Some(x), Some(y)) = (pick(&ints, a), pick(&ints, b)) else { return };
        let int: Operand =
            self.outline.builder().constant(Number::Type(NumberType::Int)).expect("few constants").into();
        let zero: Operand = self.outline.builder().constant(Number::Int(0)).expect("few constants").into();
        let mut apply = |name: &str, number_type, first: Value, second: Option<Operand>| {
            let result = self.number("d", number_type);
            let operands = std::iter::once(first.into()).chain(second).collect();
            let node = self.op(&format!("prims.{name}"), SymbolFlags::empty(), operands, vec![Some(result)]);
            self.push(node);
            result
        };
        let quotient = apply("div", NumberType::Int, x, Some(y.into()));
        let sign_x = apply("signbit", NumberType::Bool, x, None);
        let sign_y = apply("signbit", NumberType::Bool, y, None);
        let differ = apply("ne", NumberType::Bool, sign_x, Some(sign_y.into()));
        let rest = apply("fmod", NumberType::Float, x, Some(y.into()));
        let rest = apply("convert_element_type", NumberType::Int, rest, Some(int));
        let inexact = apply("ne", NumberType::Bool, rest, Some(zero));
        let corrects = apply("bitwise_and", NumberType::Bool, differ, Some(inexact.into()));
        let correction = apply("convert_element_type", NumberType::Int, corrects, Some(int));
        apply("sub", NumberType::Int, quotient, Some(correction.into()));
        self.features.count("long floor division");
    }

    /// An op that makes something known again, and something new.
    fn partly_known(&mut self, a: u16, b: u16) {
        let made: Vec<Value> =
            self.frame().nodes.iter().flat_map(|node| node.results.iter().flatten().copied()).collect();
        let (Some(known), Some(x)) = (pick(&made, a), self.some_tensor(b)) else { return };
        let new = self.tensor("w", 1);
        let name = ["ltorch.pair", "my.pair"][usize::from(b % 2)];
        let mut results = vec![Some(known), Some(new)];
        if a % 2 == 0 {
            results.swap(0, 1);
        }
        let node = self.op(name, SymbolFlags::empty(), vec![x.into()], results);
        self.features.count("partly known");
        // Not to be made again in a scope where it would be the first producer of what is known.
        self.push(node);
        self.history.pop();
    }

    fn finish(mut self, last: &Step) -> Generated {
        while self.frames.len() > 1 {
            self.close(last[1], last[2]);
        }
        let top = &self.frames[0];
        let visible: Vec<Value> = top.tensors.iter().rev().chain(top.numbers.iter().rev()).copied().collect();
        let mut returned: Vec<Operand> = Vec::new();
        for (index, &value) in visible.iter().enumerate() {
            if (usize::from(last[3]) + index * usize::from(last[4] % 7 + 1)) % 4 == 0 {
                returned.push(value.into());
            }
        }
        let node = self.op("return", SymbolFlags::empty(), returned, vec![]);
        self.frame().nodes.push(node);
        for value in std::mem::take(&mut self.outputs) {
            self.outline.builder().output(value).expect("a value");
        }
        for value in std::mem::take(&mut self.pinned) {
            self.outline.builder().pin(value).expect("a value");
        }
        let nodes = std::mem::take(&mut self.frame().nodes);
        self.emit(&nodes);
        let (program, _) = self.outline.finish().expect("a generated program is well formed");
        Generated { program, features: self.features }
    }

    fn emit(&mut self, nodes: &[Node]) {
        for node in nodes {
            let results: Vec<PackedOption<Value>> = node.results.iter().map(|&result| result.into()).collect();
            self.outline.op(&OpSpec {
                symbol: node.symbol,
                flags: node.flags,
                operands: &node.operands,
                results: &results,
            });
            if let Some(inside) = &node.inside {
                self.outline.open_scope();
                self.emit(inside);
                self.outline.close_scope();
            }
        }
    }
}
