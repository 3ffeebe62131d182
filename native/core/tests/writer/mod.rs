//! Baseline JPEGs of any geometry, for tests and fuzzing of the seek table.

/// xorshift64*: the same numbers on every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// The parameters of a test image.
#[derive(Clone, Copy, Debug)]
pub struct Make {
    pub width: usize,
    pub height: usize,
    /// Sampling factors of the luma; chroma has 1 x 1. None: gray.
    pub sampling: Option<(u8, u8)>,
    pub restart: u16,
    pub seed: u64,
}

/// Entropy-coded bits, with stuffing.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    open: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: usize, count: u32) {
        for bit in (0..count).rev() {
            self.open = self.open << 1 | (value >> bit & 1) as u32;
            self.count += 1;
            if self.count == 8 {
                self.bytes.push(self.open as u8);
                if self.open == 0xff {
                    self.bytes.push(0);
                }
                (self.open, self.count) = (0, 0);
            }
        }
    }

    fn pad(&mut self) {
        while self.count > 0 {
            self.put(1, 1);
        }
    }
}

/// A baseline JPEG of noise. Its tables have three symbols of two bits each. DC differences have 0, 3 or 6 bits; AC
/// symbols are the end of the block, a value of 1 bit and a value of 5 bits.
pub fn jpeg(make: Make) -> Vec<u8> {
    let (h, v) = make.sampling.unwrap_or((1, 1));
    let components = if make.sampling.is_some() { 3 } else { 1 };
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    bytes.extend([8; 64]);
    bytes.extend([0xff, 0xc0, 0, 8 + 3 * components, 8]);
    bytes.extend((make.height as u16).to_be_bytes());
    bytes.extend((make.width as u16).to_be_bytes());
    bytes.push(components);
    bytes.extend([1, h << 4 | v, 0]);
    (1..components).for_each(|id| bytes.extend([id + 1, 0x11, 0]));
    for (class, symbols) in [(0x00, [0, 3, 6]), (0x10, [0x00, 0x01, 0x05])] {
        bytes.extend([0xff, 0xc4, 0, 22, class, 0, 3]);
        bytes.extend([0; 14]);
        bytes.extend(symbols);
    }
    bytes.extend([0xff, 0xdd, 0, 4]);
    bytes.extend(make.restart.to_be_bytes());
    bytes.extend([0xff, 0xda, 0, 6 + 2 * components, components]);
    (0..components).for_each(|id| bytes.extend([id + 1, 0]));
    bytes.extend([0, 63, 0]);
    bytes.extend(scan(make, (h, v), components));
    bytes.extend([0xff, 0xd9]);
    bytes
}

fn scan(make: Make, (h, v): (u8, u8), components: u8) -> Vec<u8> {
    let mut numbers = Numbers(make.seed | 1);
    let mut bits = Bits::default();
    let mcus = make.width.div_ceil(8 * h as usize) * make.height.div_ceil(8 * v as usize);
    for mcu in 0..mcus {
        if make.restart > 0 && mcu > 0 && mcu % make.restart as usize == 0 {
            bits.pad();
            let number = (mcu / make.restart as usize - 1) & 7;
            bits.bytes.extend([0xff, 0xd0 | number as u8]);
        }
        for _ in 0..h * v + components - 1 {
            let dc = numbers.below(3);
            bits.put(dc, 2);
            bits.put(numbers.below(64), [0, 3, 6][dc]);
            for _ in 0..numbers.below(20) {
                let ac = 1 + numbers.below(2);
                bits.put(ac, 2);
                bits.put(numbers.below(32), [0, 1, 5][ac]);
            }
            bits.put(0, 2);
        }
    }
    bits.pad();
    bits.bytes
}
