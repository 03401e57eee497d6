"""The records of the example."""

from __future__ import annotations

from msgspec import Struct, field


class Song(Struct, frozen=True):
    id: int
    album: str
    artist: str
    name: str
    genre: str


class PlayEvent(Struct):
    song_id: int
    duration: int
    """Milliseconds."""


class SongPlayCount(Struct, frozen=True):
    song_id: int
    plays: int


class TopFiveSongs(Struct):
    """The five songs with the most plays; of two with as many, the one with the smaller id."""

    songs: list[SongPlayCount] = field(default_factory=list)

    def plus(self, song: SongPlayCount) -> TopFiveSongs:
        songs = [*self.minus(song).songs, song]
        return TopFiveSongs(sorted(songs, key=lambda each: (-each.plays, each.song_id))[:5])

    def minus(self, song: SongPlayCount) -> TopFiveSongs:
        return TopFiveSongs([each for each in self.songs if each.song_id != song.song_id])
