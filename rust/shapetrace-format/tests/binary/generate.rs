//! Random files, and some that look like what a host writes.
//!
//! A recipe is a list of seeds, one for each step; every list makes a file, so proptest shrinks a
//! failure by leaving out steps. The programs need not mean anything: the format keeps whatever
//! the builder takes.

use std::collections::HashMap;

use proptest::prelude::*;
use shapetrace_core::entity::{Entity, PackedOption};
use shapetrace_core::ir::{
    Number, NumberType, Op, OpFlags, OpSpec, Operand, OutlineBuilder, ScalarOp, Symbol, SymbolData, SymbolFlags, Value,
    ValueKind,
};
use shapetrace_format::{HostData, HostOp, Node, NodeId, Nodes, TraceFile};

/// Lists of seeds.
pub(crate) fn recipes(longest: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 0..longest)
}

/// Numbers out of a seed (splitmix64).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        (!items.is_empty()).then(|| items[self.below(items.len())])
    }
}

const KINDS: [ValueKind; 6] = [
    ValueKind::Tensor,
    ValueKind::Other,
    ValueKind::Number(NumberType::Int),
    ValueKind::Number(NumberType::Bool),
    ValueKind::Number(NumberType::Float),
    ValueKind::Number(NumberType::Other),
];

fn text(draw: &mut Draw) -> String {
    let number = draw.below(40);
    match draw.below(12) {
        0 => String::new(),
        1 => format!("{number}"),
        2 => format!("t00{number}"),
        3 => format!("é\u{1f600}{number}"),
        4 => "a line\nand \"quotes\" \0".to_owned(),
        5 => "9".repeat(number),
        6 => "long ".repeat(number),
        7 => "cuda:0".to_owned(),
        _ => format!("t{number}"),
    }
}

fn float(draw: &mut Draw) -> u64 {
    let number = draw.next();
    match number % 6 {
        0 => 0.0_f64.to_bits(),
        1 => (-0.0_f64).to_bits(),
        2 => f64::NAN.to_bits() ^ (number >> 32),
        3 => f64::NEG_INFINITY.to_bits(),
        4 => 0.5_f64.to_bits(),
        _ => number,
    }
}

fn integer(draw: &mut Draw) -> i64 {
    let number = i64::from_ne_bytes(draw.next().to_ne_bytes());
    match number & 3 {
        0 => number,
        1 => [i64::MIN, i64::MAX, -1, 0][draw.below(4)],
        _ => number >> 56,
    }
}

fn number(draw: &mut Draw) -> Number {
    let types = [NumberType::Bool, NumberType::Int, NumberType::Float, NumberType::Other];
    match draw.below(6) {
        0 => Number::Bool(draw.one_in(2)),
        1 => Number::Float(f64::from_bits(float(draw))),
        2 => Number::Type(types[draw.below(4)]),
        3 => Number::Opaque(draw.next() as u32 >> [0, 24][draw.below(2)]),
        _ => Number::Int(integer(draw)),
    }
}

struct Generator {
    outline: OutlineBuilder,
    values: Vec<Value>,
    symbols: Vec<Symbol>,
    nodes: Nodes,
    /// Nodes without a proxy in reach.
    plain: Vec<NodeId>,
    proxies: HashMap<Value, Vec<NodeId>>,
    all: Vec<NodeId>,
    ops: Vec<HostOp>,
}

/// The file of a recipe.
pub(crate) fn generate(recipe: &[u64]) -> TraceFile {
    let mut generator = Generator {
        outline: OutlineBuilder::default(),
        values: Vec::new(),
        symbols: Vec::new(),
        nodes: Nodes::default(),
        plain: Vec::new(),
        proxies: HashMap::new(),
        all: Vec::new(),
        ops: Vec::new(),
    };
    for &seed in recipe {
        generator.step(&mut Draw(seed));
    }
    generator.finish(&mut Draw(recipe.iter().fold(recipe.len() as u64, |sum, seed| sum.rotate_left(7) ^ seed)))
}

impl Generator {
    fn add(&mut self, node: Node, draw: &mut Draw) -> NodeId {
        // What is nested too deep, or stands for too much, is left out.
        let added = if draw.one_in(8) { self.nodes.push(node) } else { self.nodes.add(node) };
        let id = added.unwrap_or_else(|_| self.nodes.add(Node::None).expect("a small node"));
        self.all.push(id);
        id
    }

    fn plain(&mut self, draw: &mut Draw) -> NodeId {
        if draw.one_in(3) {
            if let Some(known) = draw.pick(&self.plain) {
                return known;
            }
        }
        let count = draw.below(4);
        let mut parts: Vec<NodeId> = (0..count).filter_map(|_| draw.pick(&self.plain)).collect();
        let node = match draw.below(14) {
            0 => Node::None,
            1 => Node::Bool(draw.one_in(2)),
            2 => Node::Int(integer(draw)),
            3 => Node::BigInt(format!("-{}{}", draw.next() | 1, draw.next()).into()),
            4 => Node::Float(float(draw)),
            5 | 6 => Node::Text(text(draw).into()),
            7 => Node::Bytes((0..draw.below(20)).map(|_| draw.next() as u8).collect()),
            8 | 9 => Node::Tuple(parts.into()),
            10 => Node::List(parts.into()),
            11 => {
                parts.truncate(parts.len() / 2 * 2);
                Node::Dict(parts.into())
            }
            _ => {
                let head = self.add(Node::Text(["Device", "DType", ""][draw.below(3)].into()), draw);
                parts.insert(0, head);
                Node::Object(parts.into())
            }
        };
        let id = self.add(node, draw);
        self.plain.push(id);
        id
    }

    fn proxy(&mut self, value: Option<Value>, draw: &mut Draw) -> NodeId {
        let known = value.and_then(|value| self.proxies.get(&value)).map(|known| draw.pick(known));
        if let (Some(Some(known)), false) = (known, draw.one_in(6)) {
            return known;
        }
        let head = self.add(Node::Text(["TensorProxy", "NumberProxy"][draw.below(2)].into()), draw);
        let mut parts = vec![head];
        for _ in 0..draw.below(4) {
            // A proxy may have others inside, such as the numbers of its shape.
            let part = if draw.one_in(4) { draw.pick(&self.all) } else { None };
            let part = part.unwrap_or_else(|| self.plain(draw));
            parts.push(part);
        }
        let node = Node::Proxy(value.into(), parts.into());
        match self.nodes.add(node) {
            Ok(id) => {
                self.all.push(id);
                if let Some(value) = value {
                    self.proxies.entry(value).or_default().push(id);
                }
                id
            }
            // Too much inside: one with nothing inside instead.
            Err(_) => self.nodes.add(Node::Proxy(value.into(), vec![head].into())).expect("a small node"),
        }
    }

    /// A structure with these parts somewhere in it.
    fn structure(&mut self, mut parts: Vec<NodeId>, draw: &mut Draw) -> NodeId {
        for _ in 0..draw.below(3) {
            let more = self.plain(draw);
            parts.insert(draw.below(parts.len() + 1), more);
        }
        if parts.len() > 1 && draw.one_in(2) {
            let inner = parts.split_off(parts.len() / 2);
            let inner = self.add(Node::List(inner.into()), draw);
            parts.push(inner);
        }
        self.add(Node::Tuple(parts.into()), draw)
    }

    fn dict(&mut self, parts: &[NodeId], draw: &mut Draw) -> NodeId {
        let mut all = Vec::new();
        for &part in parts {
            let key = self.add(Node::Text(["position", "header"][draw.below(2)].into()), draw);
            all.extend([key, part]);
        }
        self.add(Node::Dict(all.into()), draw)
    }

    fn value(&mut self, draw: &mut Draw) -> Value {
        let builder = self.outline.builder();
        let kind = KINDS[draw.below(KINDS.len())];
        let value = builder.value(kind).expect("few values");
        if draw.one_in(3) {
            builder.hint(value, number(draw)).expect("a value");
        }
        self.values.push(value);
        value
    }

    fn step(&mut self, draw: &mut Draw) {
        match draw.below(16) {
            0 => {
                let scalar = draw.one_in(2).then(|| ScalarOp::ALL[draw.below(ScalarOp::ALL.len())]);
                let flags = SymbolFlags::from_bits_truncate(draw.next() as u16);
                let symbol = SymbolData { name: text(draw), flags, scalar };
                let symbol = self.outline.builder().symbol(symbol).expect("few symbols");
                self.symbols.push(symbol);
            }
            1 => {
                let tensor = self.value(draw);
                let builder = self.outline.builder();
                let number = draw.pick(&self.values).unwrap_or(tensor);
                let position = draw.next() as u32 >> [0, 30][draw.below(2)];
                builder.shape_mention(tensor, position, number).expect("values");
            }
            2 => {
                if let Some(value) = draw.pick(&self.values) {
                    let builder = self.outline.builder();
                    match draw.below(3) {
                        0 => builder.input(value),
                        1 => builder.output(value),
                        _ => builder.pin(value),
                    }
                    .expect("a value");
                }
            }
            3 | 4 if !self.ops.is_empty() => {
                self.outline.open_scope();
                // Another op is next in any case, so that no op gets a second scope.
                if !draw.one_in(6) {
                    self.op(draw);
                    return;
                }
                self.outline.close_scope();
                self.op(draw);
            }
            5 => {
                if self.outline.close_scope() {
                    self.op(draw);
                }
            }
            _ => self.op(draw),
        }
    }

    fn op(&mut self, draw: &mut Draw) {
        if self.symbols.is_empty() {
            let symbol = SymbolData { name: "f".to_owned(), ..Default::default() };
            self.symbols.push(self.outline.builder().symbol(symbol).expect("few symbols"));
        }
        let symbol = draw.pick(&self.symbols).expect("a symbol");
        let mut operands: Vec<Operand> = Vec::new();
        let mut results: Vec<PackedOption<Value>> = Vec::new();
        for _ in 0..draw.below(5) {
            let recent = &self.values[self.values.len().saturating_sub(6)..];
            let known = if draw.one_in(4) { draw.pick(&self.values) } else { draw.pick(recent) };
            operands.push(match known {
                Some(value) if !draw.one_in(5) => value.into(),
                _ => self.outline.builder().constant(number(draw)).expect("few constants").into(),
            });
        }
        for _ in 0..draw.below(4) {
            results.push(match draw.below(6) {
                0 => PackedOption::NONE,
                1 => draw.pick(&self.values).into(),
                _ => self.value(draw).into(),
            });
        }
        let flags = OpFlags::from_bits_truncate(draw.next() as u8);
        self.outline.op(&OpSpec { symbol, flags, operands: &operands, results: &results });
        let (mut args, mut kwargs, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for operand in &operands {
            let node = match operand.value() {
                Some(value) => self.proxy(Some(value), draw),
                None => self.plain(draw),
            };
            if draw.one_in(4) { &mut kwargs } else { &mut args }.push(node);
        }
        for result in results.iter().rev() {
            outputs.push(match result.get() {
                Some(value) => self.proxy(Some(value), draw),
                None => self.plain(draw),
            });
        }
        let output = match outputs[..] {
            [only] => only,
            _ => self.structure(outputs, draw),
        };
        let position = self.plain(draw);
        let details = self.dict(&[position], draw);
        let kwargs = self.dict(&kwargs, draw);
        let args = self.structure(args, draw);
        self.ops.push(HostOp { args, kwargs, output, details });
    }

    fn finish(mut self, draw: &mut Draw) -> TraceFile {
        let about = self.dict(&[], draw);
        let odd = self.proxy(None, draw);
        let trace = self.dict(&[odd, about], draw);
        let symbols = self.symbols.iter().map(|_| draw.pick(&self.all).expect("nodes")).collect();
        let (mut program, ids) = self.outline.finish().expect("a generated program is well formed");
        if draw.one_in(3) {
            let names = (0..program.value_count()).map(|_| text(draw)).collect();
            program.name_values(names);
        } else if !draw.one_in(3) {
            program.name_values((0..program.value_count()).map(|index| format!("t{index}")).collect());
        }
        let mut ops = self.ops.clone();
        for (op, id) in self.ops.iter().zip(&ids) {
            ops[id.index()] = *op;
        }
        let host = HostData { nodes: self.nodes, about, trace, symbols, ops };
        let file = TraceFile { program, host: (!draw.one_in(5)).then_some(host) };
        file.check().expect("a generated file is consistent");
        file
    }
}

/// A trace as a host writes it: layers of a transformer, composites with their primitives inside.
pub(crate) fn model(layers: usize) -> TraceFile {
    let mut model = Model::default();
    let mut x = model.tensor();
    for layer in 0..layers {
        let line = 10 * (layer as i64 % 12);
        let weight = model.tensor();
        let h = model.composite("rms_norm", &["mul", "mean", "rsqrt", "mul", "mul"], &[x, weight], line);
        let projections: Vec<Value> = (0..3)
            .map(|index| {
                let weight = model.tensor();
                let projected = model.composite("linear", &["linear"], &[h, weight], line + index);
                model.composite("reshape", &["reshape", "transpose"], &[projected], line + index)
            })
            .collect();
        let attended = model.composite(
            "scaled_dot_product_attention",
            &["mul", "transpose", "matmul", "amax", "sub", "exp", "sum", "div", "matmul"],
            &projections,
            line + 4,
        );
        let weight = model.tensor();
        let projected = model.composite("linear", &["linear"], &[attended, weight], line + 5);
        x = model.composite("add", &["add"], &[x, projected], line + 6);
    }
    model.finish(x)
}

#[derive(Default)]
struct Model {
    outline: OutlineBuilder,
    symbols: HashMap<String, Symbol>,
    symbol_nodes: Vec<NodeId>,
    nodes: Nodes,
    proxies: Vec<NodeId>,
    ops: Vec<HostOp>,
}

impl Model {
    fn add(&mut self, node: Node) -> NodeId {
        self.nodes.add(node).expect("a small node")
    }

    fn text(&mut self, text: &str) -> NodeId {
        self.add(Node::Text(text.into()))
    }

    fn tensor(&mut self) -> Value {
        let name = format!("t{}", self.proxies.len());
        let value = self.outline.builder().named_value(&name, ValueKind::Tensor).expect("few values");
        let mut parts = vec![self.text("TensorProxy"), self.text(&name)];
        let sizes = [[4, 2048, 4096], [4096, 4096, 1], [4, 32, 2048]][self.proxies.len() % 3];
        let sizes: Vec<NodeId> = sizes.iter().map(|&size| self.add(Node::Int(size))).collect();
        parts.push(self.add(Node::Tuple(sizes.into())));
        for text in ["cuda:0", ["bfloat16", "float32"][self.proxies.len() % 2]] {
            let text = self.text(text);
            parts.push(text);
        }
        parts.push(self.add(Node::Bool(true)));
        let proxy = self.add(Node::Proxy(value.into(), parts.into()));
        self.proxies.push(proxy);
        value
    }

    fn op(&mut self, name: &str, operands: &[Value], results: &[Value], line: i64) {
        let next = self.symbols.len();
        if !self.symbols.contains_key(name) {
            let symbol = SymbolData { name: name.to_owned(), flags: SymbolFlags::TRUSTED, scalar: None };
            let symbol = self.outline.builder().symbol(symbol).expect("few symbols");
            assert_eq!(symbol.index(), next);
            self.symbols.insert(name.to_owned(), symbol);
            let parts = [self.text("Symbol"), self.text("thunder"), self.text(name)];
            let node = self.add(Node::Object(parts.into()));
            self.symbol_nodes.push(node);
        }
        let reads: Vec<Operand> = operands.iter().map(|&value| value.into()).collect();
        let writes: Vec<_> = results.iter().map(|&value| value.into()).collect();
        let symbol = self.symbols[name];
        self.outline.op(&OpSpec { symbol, flags: OpFlags::empty(), operands: &reads, results: &writes });
        let args: Vec<NodeId> = operands.iter().map(|value| self.proxies[value.index()]).collect();
        let args = self.add(Node::Tuple(args.into()));
        let kwargs = self.add(Node::Dict([].into()));
        let output = match results {
            [] => self.add(Node::None),
            _ => self.proxies[results[0].index()],
        };
        let details = [
            self.text("source_filename"),
            self.text("/usr/lib/python3/site-packages/model/layers.py"),
            self.text("source_position"),
            self.add(Node::Int(line)),
        ];
        let details = self.add(Node::Dict(details.into()));
        self.ops.push(HostOp { args, kwargs, output, details });
    }

    fn composite(&mut self, name: &str, inside: &[&str], operands: &[Value], line: i64) -> Value {
        let made: Vec<Value> = inside.iter().map(|_| self.tensor()).collect();
        let result = *made.last().expect("something inside");
        self.op(&format!("ltorch.{name}"), operands, &[result], line);
        self.outline.open_scope();
        let mut last = operands[0];
        for (index, (primitive, &value)) in inside.iter().zip(&made).enumerate() {
            let second = operands[index % operands.len()];
            self.op(&format!("prims.{primitive}"), &[last, second], &[value], line);
            last = value;
        }
        self.outline.close_scope();
        result
    }

    fn finish(mut self, x: Value) -> TraceFile {
        self.op("return", &[x], &[], 0);
        let about = self.add(Node::Dict([].into()));
        let (program, ids): (_, Vec<Op>) = self.outline.finish().expect("a well-formed program");
        let mut ops = self.ops.clone();
        for (op, id) in self.ops.iter().zip(&ids) {
            ops[id.index()] = *op;
        }
        let host = HostData { nodes: self.nodes, about, trace: about, symbols: self.symbol_nodes, ops };
        TraceFile { program, host: Some(host) }
    }
}
