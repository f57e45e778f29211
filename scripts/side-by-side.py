#!/usr/bin/env python3
"""Pictures side by side with a label below each, as docs/images/session.jpg shows a session. Needs Pillow.

  scripts/side-by-side.py OUT.jpg LABEL=PICTURE...        `|` in a label begins a new line
"""
import sys

from PIL import Image, ImageDraw, ImageFont

WIDTH, GAP, BAR = 400, 8, 66
FONT = ImageFont.truetype("DejaVuSans.ttf", 24)

out, *labelled = sys.argv[1:]
pictures = []
for label, path in (item.split("=", 1) for item in labelled):
    picture = Image.open(path).convert("RGB")
    size = (WIDTH, round(picture.height * WIDTH / picture.width))
    pictures.append((label.replace("|", "\n"), picture.resize(size, Image.LANCZOS)))
height = max(picture.height for _, picture in pictures)
sheet = Image.new("RGB", (len(pictures) * (WIDTH + GAP) - GAP, height + BAR), "white")
draw = ImageDraw.Draw(sheet)
for at, (label, picture) in enumerate(pictures):
    left = at * (WIDTH + GAP)
    sheet.paste(picture, (left, 0))
    draw.multiline_text((left + WIDTH / 2, height + 6), label, fill=(30, 30, 30), font=FONT, anchor="ma",
                        align="center", spacing=2)
sheet.save(out, quality=84, optimize=True)
