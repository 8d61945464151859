//! Writes capture files field by field.

use super::super::record::Order;

fn u16(order: Order, value: u16) -> [u8; 2] {
    match order {
        Order::Little => value.to_le_bytes(),
        Order::Big => value.to_be_bytes(),
    }
}

pub(super) fn u32(order: Order, value: u32) -> [u8; 4] {
    match order {
        Order::Little => value.to_le_bytes(),
        Order::Big => value.to_be_bytes(),
    }
}

fn len(bytes: &[u8]) -> u32 {
    bytes.len().try_into().unwrap()
}

/// An IPv4 packet from 192.0.2.1:4000 to 198.51.100.7:443.
pub(super) fn udp_packet(payload: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(28 + payload.len()).unwrap().to_be_bytes();
    let mut packet =
        vec![0x45, 0, high, low, 0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7];
    packet.extend([0x0f, 0xa0, 0x01, 0xbb]);
    packet.extend(u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// A classic file. Each packet has seconds, a fraction, a length, and the kept bytes.
pub(super) fn pcap(
    magic: u32,
    order: Order,
    link: u32,
    packets: &[(u32, u32, u32, &[u8])],
) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(u32(order, magic));
    file.extend(u16(order, 2));
    file.extend(u16(order, 4));
    for field in [0, 0, 262_144, link] {
        file.extend(u32(order, field));
    }
    for &(seconds, fraction, length, kept) in packets {
        for field in [seconds, fraction, len(kept), length] {
            file.extend(u32(order, field));
        }
        if magic == 0xa1b2_cd34 {
            file.extend([0xee; 8]);
        }
        file.extend(kept);
    }
    file
}

/// A section of a pcapng file.
pub(super) struct Pcapng(pub(super) Vec<u8>, Order);

impl Pcapng {
    pub(super) fn new(order: Order) -> Self {
        let mut section = Self(Vec::new(), order);
        let mut body = section.u32(0x1a2b_3c4d).to_vec();
        body.extend(u16(order, 1));
        body.extend(u16(order, 0));
        body.extend([0xff; 8]);
        section.block(0x0a0d_0d0a, &body);
        section
    }

    fn u32(&self, value: u32) -> [u8; 4] {
        u32(self.1, value)
    }

    pub(super) fn i64(&self, value: i64) -> [u8; 8] {
        match self.1 {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    pub(super) fn block(&mut self, kind: u32, body: &[u8]) {
        let padded = body.len().next_multiple_of(4);
        let length = self.u32(12 + u32::try_from(padded).unwrap());
        self.0.extend(self.u32(kind));
        self.0.extend(length);
        self.0.extend(body);
        self.0.resize(self.0.len() + padded - body.len(), 0);
        self.0.extend(length);
    }

    fn options(&self, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (code, value) in options {
            bytes.extend(u16(self.1, *code));
            bytes.extend(u16(self.1, value.len().try_into().unwrap()));
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        if !options.is_empty() {
            bytes.extend([0; 4]);
        }
        bytes
    }

    pub(super) fn interface(&mut self, link: u16, snap_len: u32, options: &[(u16, &[u8])]) {
        let mut body = u16(self.1, link).to_vec();
        body.extend([0; 2]);
        body.extend(self.u32(snap_len));
        body.extend(self.options(options));
        self.block(1, &body);
    }

    fn packet(
        &mut self,
        kind: u32,
        head: [u8; 4],
        units: u64,
        length: u32,
        kept: &[u8],
        options: &[(u16, &[u8])],
    ) {
        let mut body = head.to_vec();
        let (high, low) =
            ((units >> 32).try_into().unwrap(), (units & 0xffff_ffff).try_into().unwrap());
        for field in [high, low, len(kept), length] {
            body.extend(self.u32(field));
        }
        body.extend(kept);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(self.options(options));
        self.block(kind, &body);
    }

    pub(super) fn enhanced(
        &mut self,
        interface: u32,
        units: u64,
        length: u32,
        kept: &[u8],
        options: &[(u16, &[u8])],
    ) {
        self.packet(6, self.u32(interface), units, length, kept, options);
    }

    pub(super) fn obsolete(&mut self, interface: u16, units: u64, length: u32, kept: &[u8]) {
        let [a, b] = u16(self.1, interface);
        self.packet(2, [a, b, 0xff, 0xff], units, length, kept, &[]);
    }

    pub(super) fn simple(&mut self, length: u32, kept: &[u8]) {
        let body = [&self.u32(length), kept].concat();
        self.block(3, &body);
    }
}
