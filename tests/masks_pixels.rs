//! Where masks act, held against pixels of the real darktable.

#[path = "support/chart.rs"]
mod chart;
#[path = "support/demo.rs"]
mod demo;

use chemigram::darktable::dng::DngOptions;
use demo::Demo;

fn lab(rgb: [f64; 3]) -> [f64; 3] {
    let [r, g, b] = rgb;
    let f = |t: f64| if t > 216.0 / 24389.0 { t.cbrt() } else { (24389.0 / 27.0 * t + 16.0) / 116.0 };
    let x = f((0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047);
    let y = f(chart::luminance(rgb));
    let z = f((0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883);
    let (a, bb) = (500.0 * (x - y), 200.0 * (y - z));
    [116.0 * y - 16.0, a.hypot(bb), bb.atan2(a).to_degrees().rem_euclid(360.0)]
}

fn hsv(rgb: [f64; 3]) -> f64 {
    let c = rgb.map(|v| if v < 0.0031308 { 12.92 * v } else { 1.055 * v.powf(1.0 / 2.4) - 0.055 });
    let max = c.iter().copied().fold(0.0, f64::max);
    let min = c.iter().copied().fold(1.0, f64::min);
    let d = (max - min).max(1e-9);
    60.0 * if max == c[0] { ((c[1] - c[2]) / d).rem_euclid(6.0) } else if max == c[1] { (c[2] - c[0]) / d + 2.0 } else { (c[0] - c[1]) / d + 4.0 }
}

#[test]
fn explore() {
    let demo = Demo::of(&chart::picture(), &DngOptions { noise: 0.0, ..DngOptions::default() });
    let baseline = &demo.facts.baseline;
    for m in &baseline.modules { if ["filmicrgb", "exposure"].contains(&m.op.as_str()) { println!("{:?}", m.params); } }
    let mut states = vec![baseline.clone(), demo.apply(baseline, "exposure", &[("ev", -1.0)], None).state];
    let masks: Vec<String> = (0..10).map(|i| format!(r#"{{"range":"luminance","from":{},"to":{},"softness":0}}"#, i * 10, i * 10 + 10))
        .chain((0..10).map(|i| format!(r#"{{"range":"chroma","from":{},"to":{},"softness":0}}"#, i * 10, i * 10 + 10)))
        .chain((0..24).map(|i| format!(r#"{{"range":"hue","from":{},"to":{},"softness":0}}"#, i * 15, i * 15 + 15))).collect();
    let mv = std::env::var("MV").unwrap_or("exposure".into());
    for mask in &masks {
        states.push(demo.apply(baseline, &mv, &[], Some(mask)).state);
    }
    let start = std::time::Instant::now();
    let pictures = demo.render_all(&states);
    println!("{} renders {:?}", states.len(), start.elapsed());
    let base = chart::patches(&pictures[0]);
    let all: Vec<_> = pictures[2..].iter().map(|p| chart::patches(p)).collect();
    for (i, (name, rgb)) in chart::PATCHES.iter().enumerate() {
        let p = lab(rgb.map(chart::linear));
        let d = lab(base[i]);
        let hit = |from: usize, n: usize| (0..n).filter(|k| (0..3).any(|c| (all[from + k][i][c] - base[i][c]).abs() > 0.004)).map(|k| k.to_string()).collect::<Vec<_>>().join(" ");
        println!("{name:14} published L {:5.1} C {:5.1} H {:5.1} | shown L {:5.1} C {:5.1} H {:5.1} | lum {} | chroma {} | hue {}", p[0], p[1], hsv(rgb.map(chart::linear)), d[0], d[1], hsv(base[i]), hit(0, 10), hit(10, 10), hit(20, 24).split(' ').map(|k| k.parse::<u32>().map_or(String::new(), |k| (k * 15).to_string())).collect::<Vec<_>>().join(" "));
    }
}
