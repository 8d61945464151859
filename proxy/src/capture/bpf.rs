//! The instructions of classic BPF that the programs here use (`bpf(4)`). The kernel runs them on a
//! packet before this program sees it.

use nix::libc::sock_filter;

/// `A = byte[k]`
pub(super) const LOAD_BYTE: u16 = 0x30;
/// `A = half[k]`
pub(super) const LOAD_HALF: u16 = 0x28;
/// `A = byte[X + k]`
pub(super) const LOAD_BYTE_AT_X: u16 = 0x50;
/// `A = half[X + k]`
pub(super) const LOAD_HALF_AT_X: u16 = 0x48;
/// `A = word[X + k]`
pub(super) const LOAD_WORD_AT_X: u16 = 0x40;
/// `X = k`
pub(super) const SET_X: u16 = 0x01;
/// `M[k] = A`
pub(super) const STORE: u16 = 0x02;
/// `X = M[k]`
pub(super) const LOAD_X: u16 = 0x61;
/// `A = X`
pub(super) const FROM_X: u16 = 0x87;
/// `X = A`
pub(super) const TO_X: u16 = 0x07;
/// `A += k`
pub(super) const ADD: u16 = 0x04;
/// `A &= k`
pub(super) const AND: u16 = 0x54;
/// `A ^= X`
pub(super) const XOR_X: u16 = 0xac;
/// `A *= k`
pub(super) const MULTIPLY: u16 = 0x24;
/// `A %= k`
pub(super) const MODULO: u16 = 0x94;
/// `A >>= k`
pub(super) const SHIFT_RIGHT: u16 = 0x74;
/// Skips `k` instructions.
pub(super) const JUMP: u16 = 0x05;
/// Skips `jt` instructions if `A == k`, `jf` if not.
pub(super) const IF_EQUAL: u16 = 0x15;
/// Ends with `k`.
pub(super) const RETURN: u16 = 0x06;
pub(super) const RETURN_A: u16 = 0x16;
/// At this offset, `LOAD_HALF` loads the packet's EtherType as the kernel knows it (`SKF_AD_OFF +
/// SKF_AD_PROTOCOL`).
pub(super) const ETHERTYPE: u32 = 0xffff_f000;
/// At this offset, `LOAD_BYTE` loads the packet's type (`SKF_AD_OFF + SKF_AD_PKTTYPE`), such as
/// leaving or arriving: a `PACKET_` constant of `packet(7)`.
pub(super) const PACKET_TYPE: u32 = 0xffff_f004;

/// At this offset, `LOAD_BYTE` loads whether the packet has a VLAN tag beside its bytes, 1 or 0
/// (`SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT`): the network card will insert it, or has removed it.
pub(super) const VLAN_TAG_PRESENT: u32 = 0xffff_f030;

/// An instruction.
pub(super) fn op(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The result of a program for a packet with this EtherType, which arrived. It is 0 if the program
/// reads past the end, as in the kernel.
#[cfg(test)]
pub(super) fn run(program: &[sock_filter], packet: &[u8], ethertype: u16) -> u32 {
    run_for(program, packet, ethertype, nix::libc::PACKET_HOST)
}

/// The same for a packet of this type.
#[cfg(test)]
pub(super) fn run_for(
    program: &[sock_filter],
    packet: &[u8],
    ethertype: u16,
    packet_type: u8,
) -> u32 {
    run_tagged(program, packet, (ethertype, packet_type, false))
}

/// As [`run_for`], for a packet with or without a VLAN tag beside its bytes.
#[cfg(test)]
pub(super) fn run_tagged(
    program: &[sock_filter],
    packet: &[u8],
    (ethertype, packet_type, tagged): (u16, u8, bool),
) -> u32 {
    let (mut at, mut a, mut x, mut stored) = (0, 0_u32, 0_u32, [0_u32; 16]);
    loop {
        let op = &program[at];
        let k = op.k as usize;
        at += 1;
        match op.code {
            LOAD_HALF if op.k == ETHERTYPE => a = ethertype.into(),
            LOAD_BYTE if op.k == PACKET_TYPE => a = packet_type.into(),
            LOAD_BYTE if op.k == VLAN_TAG_PRESENT => a = tagged.into(),
            LOAD_BYTE | LOAD_HALF | LOAD_BYTE_AT_X | LOAD_HALF_AT_X | LOAD_WORD_AT_X => {
                let (start, len) = match op.code {
                    LOAD_BYTE => (k, 1),
                    LOAD_HALF => (k, 2),
                    LOAD_BYTE_AT_X => (k + x as usize, 1),
                    LOAD_HALF_AT_X => (k + x as usize, 2),
                    _ => (k + x as usize, 4),
                };
                let Some(bytes) = packet.get(start..start + len) else { return 0 };
                a = bytes.iter().fold(0, |a, byte| a << 8 | u32::from(*byte));
            }
            SET_X => x = op.k,
            FROM_X => a = x,
            TO_X => x = a,
            ADD => a = a.wrapping_add(op.k),
            STORE => stored[k] = a,
            LOAD_X => x = stored[k],
            AND => a &= op.k,
            XOR_X => a ^= x,
            MULTIPLY => a = a.wrapping_mul(op.k),
            MODULO => a %= op.k,
            SHIFT_RIGHT => a >>= op.k,
            JUMP => at += k,
            IF_EQUAL => at += usize::from(if a == op.k { op.jt } else { op.jf }),
            RETURN => return op.k,
            RETURN_A => return a,
            other => panic!("instruction {other:#x}"),
        }
    }
}
