//! A transformer of one layer with weights made from a seed. Pure.
//!
//! It predicts bytes of a small alphabet. Its weights are as random as its seed, so its texts mean
//! nothing; but the same prompt has the same text for one model and another text for another, which
//! is what shows which model answered.

/// The characters of texts.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz ,.!?\n";
/// The width of the model.
const WIDTH: usize = 16;
/// How many characters it looks back.
const CONTEXT: usize = 48;
/// The number of weights: embedding, position, query, key, value, output.
const PARAMETERS: usize = ALPHABET.len() * WIDTH * 2 + CONTEXT * WIDTH + 3 * WIDTH * WIDTH;

/// The smallest memory of weights, in bytes.
pub const MIN_WEIGHT_BYTES: usize = PARAMETERS;

/// Returns the seed of a model by its name.
#[must_use]
pub fn seed_of(name: &str) -> u64 {
    // FNV-1a, whose result must never change: it is part of what a model is.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Makes the weights of a model.
#[must_use]
pub fn make_weights(seed: u64, bytes: usize) -> Vec<u8> {
    let mut weights = vec![0; bytes.max(MIN_WEIGHT_BYTES)];
    fastrand::Rng::with_seed(seed).fill(&mut weights);
    weights
}

/// Returns what identifies weights in responses.
#[must_use]
pub fn fingerprint(weights: &[u8]) -> String {
    let parameters = &weights[..PARAMETERS.min(weights.len())];
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, parameters);
    digest.as_ref().iter().take(8).map(|it| format!("{it:02x}")).collect()
}

/// Generates text after a prompt: the most likely characters, among which a generator chooses that
/// is seeded by weights and prompt.
#[must_use]
pub fn generate(weights: &[u8], prompt: &str, count: usize) -> String {
    let Some(model) = Model::of(weights) else { return String::new() };
    let symbol = |it: u8| {
        let it = it.to_ascii_lowercase();
        ALPHABET
            .iter()
            .position(|known| *known == it)
            .unwrap_or_else(|| usize::from(it) % ALPHABET.len())
    };
    let mut symbols: Vec<usize> = prompt.bytes().map(symbol).collect();
    let seed = seed_of(prompt) ^ seed_of(&fingerprint(weights));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut text = String::new();
    for _ in 0..count {
        let start = symbols.len().saturating_sub(CONTEXT);
        let next = choose(&model.next(&symbols[start..]), &mut random);
        symbols.push(next);
        text.push(char::from(ALPHABET[next]));
    }
    text
}

/// The weights, by their purpose. A weight is a byte.
struct Model<'a> {
    embedding: &'a [u8],
    position: &'a [u8],
    query: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
    output: &'a [u8],
}

impl<'a> Model<'a> {
    fn of(weights: &'a [u8]) -> Option<Self> {
        let vocabulary = ALPHABET.len() * WIDTH;
        let (embedding, rest) = weights.split_at_checked(vocabulary)?;
        let (position, rest) = rest.split_at_checked(CONTEXT * WIDTH)?;
        let (query, rest) = rest.split_at_checked(WIDTH * WIDTH)?;
        let (key, rest) = rest.split_at_checked(WIDTH * WIDTH)?;
        let (value, rest) = rest.split_at_checked(WIDTH * WIDTH)?;
        let (output, _) = rest.split_at_checked(vocabulary)?;
        Some(Self { embedding, position, query, key, value, output })
    }

    /// Returns how likely each character is after these.
    fn next(&self, symbols: &[usize]) -> Vec<f32> {
        let embed = |(at, symbol): (usize, &usize)| -> Vec<f32> {
            let row = |table: &[u8], at: usize, to: usize| weight(table[at * WIDTH + to]);
            let sum = |to| row(self.embedding, *symbol, to) + row(self.position, at, to);
            (0..WIDTH).map(sum).collect()
        };
        let rows: Vec<Vec<f32>> = symbols.iter().enumerate().map(embed).collect();
        let Some(last) = rows.last() else {
            // Nothing to attend to: all characters are alike.
            return vec![0.0; ALPHABET.len()];
        };
        let query = times(self.query, last);
        let scores: Vec<f32> =
            rows.iter().map(|row| dot(&query, &times(self.key, row)) / 4.0).collect();
        let shares = softmax(&scores);
        let mut mixed = last.clone();
        for (row, share) in rows.iter().zip(&shares) {
            for (to, value) in mixed.iter_mut().zip(times(self.value, row)) {
                *to += share * value;
            }
        }
        let size = dot(&mixed, &mixed).sqrt().max(1e-6);
        let column = |symbol: usize| {
            let weights = &self.output[symbol * WIDTH..(symbol + 1) * WIDTH];
            weights.iter().zip(&mixed).map(|(it, value)| weight(*it) * value / size).sum()
        };
        (0..ALPHABET.len()).map(column).collect()
    }
}

/// A weight between -1 and 1.
fn weight(byte: u8) -> f32 {
    (f32::from(byte) - 127.5) / 127.5
}

fn times(matrix: &[u8], vector: &[f32]) -> Vec<f32> {
    let row = |row: &[u8]| row.iter().zip(vector).map(|(it, value)| weight(*it) * value).sum();
    matrix.chunks(WIDTH).map(row).collect()
}

fn dot(one: &[f32], two: &[f32]) -> f32 {
    one.iter().zip(two).map(|(one, two)| one * two).sum()
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    let most = scores.iter().copied().fold(f32::MIN, f32::max);
    let powers: Vec<f32> = scores.iter().map(|it| (it - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|it| it / sum).collect()
}

fn choose(scores: &[f32], random: &mut fastrand::Rng) -> usize {
    let mut left = random.f32();
    for (symbol, share) in softmax(scores).iter().enumerate() {
        left -= share;
        if left <= 0.0 {
            return symbol;
        }
    }
    scores.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_depends_on_the_model_and_the_prompt_and_on_nothing_else() {
        let weights = |name: &str| make_weights(seed_of(name), 10_000);
        let text = |name: &str, prompt: &str| generate(&weights(name), prompt, 40);
        assert_eq!(text("a", "Hello"), text("a", "Hello"));
        assert_ne!(text("a", "Hello"), text("b", "Hello"));
        assert_ne!(text("a", "Hello"), text("a", "World"));
        assert_eq!(text("a", "").len(), 40);
        assert_eq!(text("a", &"long ".repeat(100)).len(), 40);
        // More memory is no other model.
        assert_eq!(text("a", "x"), generate(&make_weights(seed_of("a"), 20_000), "x", 40));
        assert_ne!(fingerprint(&weights("a")), fingerprint(&weights("b")));
        assert_eq!(generate(&[], "x", 3), "");
    }
}
